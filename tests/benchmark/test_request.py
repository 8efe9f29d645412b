"""What a benchmark is asked to do, and which other command may continue it."""

from dataclasses import replace

import pytest

from ccp_dml.benchmark.request import default_folder, extend
from ccp_dml.config.recipes import parse_data, parse_methods, recipe_label
from ccp_dml.errors import UserError
from ccp_dml.records.benchmark_folder import BenchmarkRequest, read_request, write_request

BENCHMARK = BenchmarkRequest("mlrc", "features", ("c2",), 1, ("data.path=x.npz", "optim.lr=1e-3"))


def test_methods_are_shipped_names_or_files(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("")
    assert parse_methods(f"c2, c2-ccp,{mine}") == ("c2", "c2-ccp", str(mine))
    assert recipe_label(str(mine)) == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c2,c2-cpp", "no method 'c2-cpp'.*did you mean 'c2-ccp'"),
        ("c2,,ms", "empty name"),
        ("", "empty name"),
        ("c2,ms,c2", "'c2' more than once"),
        ("cub", "no method 'cub'"),
        ("missing.toml", "no method 'missing.toml'"),
    ],
)
def test_bad_methods_are_named(text, message):
    with pytest.raises(UserError, match=message):
        parse_methods(text)


def test_an_unknown_data_set_is_named_with_the_nearest():
    assert parse_data("cub") == "cub"
    with pytest.raises(UserError, match=r"no data set 'featurs'.*did you mean 'features'"):
        parse_data("featurs")


def test_two_files_of_one_name_would_share_a_folder(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text("")
    with pytest.raises(UserError, match="'mine' more than once"):
        parse_methods(f"{tmp_path}/a/mine.toml,{tmp_path}/b/mine.toml")


def test_what_is_written_down_is_read_back(tmp_path):
    assert read_request(tmp_path / "new") is None
    write_request(tmp_path / "new", BENCHMARK)
    assert read_request(tmp_path / "new") == BENCHMARK
    assert str(default_folder(BENCHMARK)) == "runs/mlrc-features"


def test_more_methods_and_repeats_extend(tmp_path):
    write_request(tmp_path, replace(BENCHMARK, methods=("c2", "ms"), repeats=2))
    assert extend(tmp_path, replace(BENCHMARK, methods=("c1", "c2"))).methods == ("c2", "ms", "c1")
    assert extend(tmp_path, BENCHMARK).repeats == 2
    assert extend(tmp_path, replace(BENCHMARK, repeats=3)).repeats == 3


def test_a_comparison_with_the_paper_stays_until_another_is_named(tmp_path):
    write_request(tmp_path, replace(BENCHMARK, paper="cub"))
    assert extend(tmp_path, BENCHMARK).paper == "cub"
    assert extend(tmp_path, replace(BENCHMARK, paper="sop")).paper == "sop"


def test_an_earlier_method_whose_file_is_gone_is_named_as_such(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("")
    write_request(tmp_path, replace(BENCHMARK, methods=("c2", str(mine))))
    assert extend(tmp_path, BENCHMARK).methods == ("c2", str(mine))
    mine.unlink()
    with pytest.raises(UserError, match=r"has the method '.*mine\.toml' of an earlier command, .*: restore it"):
        extend(tmp_path, BENCHMARK)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "conventional"}, "protocol = mlrc, not conventional"),
        ({"data": "folder"}, "data = features, not folder"),
        ({"settings": ("data.path=x.npz", "optim.lr=0.01")}, r"optim\.lr = 0\.001, not 0\.01"),
        ({"settings": ("data.path=x.npz",)}, r"optim\.lr = 0\.001, not its default"),
        ({"settings": (*BENCHMARK.settings, "train.max_steps=9")}, r"train\.max_steps = its default, not 9"),
    ],
)
def test_any_other_difference_is_refused(tmp_path, change, message):
    write_request(tmp_path, BENCHMARK)
    with pytest.raises(UserError, match=message):
        extend(tmp_path, replace(BENCHMARK, **change))


def test_the_same_settings_in_other_words_continue(tmp_path):
    write_request(tmp_path, BENCHMARK)
    other_words = ("optim.lr=7", "optim.lr=0.001", "data.path=x.npz", "run.device=cpu")
    assert extend(tmp_path, replace(BENCHMARK, settings=other_words)).methods == ("c2",)


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not empty and holds no benchmark"):
        read_request(tmp_path)
    (tmp_path / "benchmark.toml").write_text("protocol = ")
    with pytest.raises(UserError, match="is not valid TOML"):
        read_request(tmp_path)
