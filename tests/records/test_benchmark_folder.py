"""What a benchmark keeps on disk: its request, its runs, and the scores of its ensembles."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.benchmark_folder import (
    BenchmarkFolder,
    BenchmarkRequest,
    Protocol,
    is_benchmark,
    read_ensemble,
    read_request,
    write_ensemble,
    write_request,
)

REQUEST = BenchmarkRequest("mlrc", "cub", ("c2", "c2-ccp"), 2, ("data.root=/my birds", "optim.lr=1", "optim.lr = 2"))


def test_a_request_is_read_back(tmp_path: Path) -> None:
    assert read_request(tmp_path / "new") is None
    assert not is_benchmark(tmp_path / "new")
    write_request(tmp_path, REQUEST)
    assert read_request(tmp_path) == REQUEST
    assert is_benchmark(tmp_path)
    assert REQUEST.title == "MLRC protocol on cub"
    assert replace(REQUEST, protocol="conventional").title == "Conventional protocol on cub"
    write_request(tmp_path, replace(REQUEST, paper="cub"))
    assert read_request(tmp_path) == replace(REQUEST, paper="cub")
    assert BenchmarkFolder.read(tmp_path).command().endswith(f" --paper cub --out {tmp_path}")


def test_runs_are_found_by_method_and_the_command_repeats_all(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_request(tmp_path, REQUEST)
    for name in ("c2/repeat0/fold1", "c2/repeat0/fold0", "other/repeat0/fold0"):
        write_run(tmp_path / name)
    found = BenchmarkFolder.read(tmp_path)
    assert list(found.runs) == ["c2/repeat0/fold0", "c2/repeat0/fold1"]
    assert {name: len(runs) for name, runs in found.methods().items()} == {"c2": 2}
    assert (found.table, found.figure) == (None, None)
    assert found.command() == (
        "ccp benchmark mlrc --data cub --methods c2,c2-ccp --repeats 2 --set 'data.root=/my birds' --set optim.lr=1 "
        f"--set 'optim.lr = 2' --out {tmp_path}"
    )


def test_copies_of_runs_are_no_runs_of_the_benchmark(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_request(tmp_path, REQUEST)
    folds = [f"c2/repeat{repeat}/fold{fold}" for repeat in (0, 1) for fold in (2, 10)]
    copies = ("repeat0/fold2 (copy)", "repeat0/fold2/again", "repeat0/fold02", "repeat0 (copy)/fold2", "repeat2/fold2")
    for name in (*folds, *(f"c2/{copy}" for copy in copies)):
        write_run(tmp_path / name)
    (tmp_path / "c2-ccp" / "repeat0" / "fold0").mkdir(parents=True)  # killed before it began
    assert list(BenchmarkFolder.read(tmp_path).runs) == folds


@pytest.mark.parametrize(("protocol", "name"), [("mlrc", "mine[1]/repeat0/fold0"), ("conventional", "mine[1]/repeat0")])
def test_runs_of_a_method_are_found_whatever_its_file_is_called(
    write_run: Callable[..., Path], tmp_path: Path, protocol: Protocol, name: str
) -> None:
    write_request(tmp_path, replace(REQUEST, protocol=protocol, methods=("x/mine[1].toml",)))
    write_run(tmp_path / name)
    assert list(BenchmarkFolder.read(tmp_path).methods()) == ["mine[1]"]
    assert list(BenchmarkFolder.read(tmp_path).runs) == [name]


def test_a_folder_of_something_else_and_a_damaged_request_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no benchmark"):
        BenchmarkFolder.read(tmp_path)
    (tmp_path / "benchmark.toml").write_text('protocol = "mlrc"')
    with pytest.raises(UserError, match=r"benchmark\.toml is damaged \(it does not say 'data'\)"):
        read_request(tmp_path)


@pytest.fixture
def ensemble(tmp_path: Path) -> list[Path]:
    """The folders of two models, beside the scores of their ensemble."""
    folds = [tmp_path / "fold0", tmp_path / "fold1"]
    for fold in folds:
        fold.mkdir()
        (fold / "result.json").write_text("{}")
    assert read_ensemble(folds) is None
    write_ensemble(folds, {"map_at_r": 0.5, "recall_at": {"1": 0.1}}, ["fold0", "fold1"])
    assert read_ensemble(folds) == {"map_at_r": 0.5, "recall_at": {"1": 0.1}}
    return folds


def test_an_ensemble_belongs_to_the_results_of_its_models(ensemble: list[Path]) -> None:
    (ensemble[1] / "result.json").write_text('{"test": {}}')
    assert read_ensemble(ensemble) is None


@pytest.mark.parametrize(
    "text", ["{}", "", "[]", '{"test": {"map_at_r": 0.9}}', '{"test": 3, "digest": ""}', '{"test": {}, "digest": null}']
)
def test_scores_of_an_ensemble_that_nobody_computed_are_not_read(ensemble: list[Path], text: str) -> None:
    (ensemble[0].parent / "ensemble.json").write_text(text)
    assert read_ensemble(ensemble) is None


def test_a_changed_score_of_an_ensemble_is_not_read(ensemble: list[Path]) -> None:
    file = ensemble[0].parent / "ensemble.json"
    file.write_text(file.read_text().replace("0.5", "0.9"))
    assert read_ensemble(ensemble) is None
