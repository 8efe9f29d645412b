"""What a benchmark is asked to do, and which other command may continue it."""

from dataclasses import replace

import pytest

from ccp_dml.benchmark.request import default_folder, extend
from ccp_dml.errors import UserError
from ccp_dml.records.benchmark_folder import BenchmarkRequest, write_request

BENCHMARK = BenchmarkRequest("mlrc", "features", ("c2",), 1, ("data.path=x.npz", "optim.lr=1e-3"))


def test_the_same_command_gets_the_same_folder():
    assert str(default_folder(BENCHMARK)) == "runs/mlrc-features"


def test_more_methods_and_repeats_extend(tmp_path):
    assert extend(tmp_path / "new", BENCHMARK) == BENCHMARK
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
