import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder, number, read_runs, run_labels


def test_everything_that_training_wrote_is_read(write_run: Callable[..., Path], tmp_path: Path) -> None:
    run = RunFolder.read(write_run(tmp_path / "c2-ccp", gallery={"queries": []}))
    assert run.finished
    assert run.name == "c2-ccp"
    assert run.settings()["loss.negative_margin"] == 0.5
    assert run.environment["torch"] == "2.15.0"
    assert len(run.metrics) == 40
    assert run.score("test", "map_at_r") == pytest.approx(run.score("validation", "map_at_r") - 0.02)
    assert run.count("steps") == 2000
    assert run.count("problems") == 5
    assert run.seconds() == pytest.approx(168)
    assert run.gallery == {"queries": []}


def test_an_unfinished_run_tells_what_it_has(write_run: Callable[..., Path], tmp_path: Path) -> None:
    run = RunFolder.read(write_run(tmp_path / "run", finished=False))
    assert not run.finished
    assert run.score("test", "map_at_r") is None
    assert run.count("steps") == 2000
    assert run.count("problems") == 5
    best = run.best_evaluation()
    assert best is not None
    assert best["map_at_r"] == max(row["map_at_r"] for row in run.metrics)


def test_a_run_killed_before_its_first_evaluation_is_still_a_run(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    (folder / "metrics.jsonl").unlink()
    run = RunFolder.read(folder)
    assert (run.metrics, run.best_evaluation(), run.count("steps"), run.seconds()) == ([], None, None, None)


def test_the_selected_evaluation_is_the_result_s_not_the_maximum(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"best_step": 100}))
    best = RunFolder.read(folder).best_evaluation()
    assert best is not None
    assert best["step"] == 100


def test_what_is_no_run_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no run .*missing; give a folder that `ccp train"):
        RunFolder.read(tmp_path / "missing")
    with pytest.raises(UserError, match=r"holds no run \(no config.toml in it\)"):
        RunFolder.read(tmp_path)
    with pytest.raises(UserError, match="at least one folder"):
        read_runs([])


def test_a_benchmark_or_study_names_its_page_and_a_run_of_its_own(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    for noun, request, page in (("benchmark", "benchmark.toml", "report.html"), ("study", "study.toml", "study.html")):
        folder = tmp_path / noun
        folder.mkdir()
        (folder / request).write_text("")
        for read in (RunFolder.read, Logbook.reopen):
            with pytest.raises(UserError, match=f"holds a {noun}, not a single run; none of its runs has begun"):
                read(folder)
        (folder / page).write_text("")
        for name in ("repeat1", "repeat0"):
            write_run(folder / "c2" / name)
        for read in (RunFolder.read, Logbook.reopen):
            with pytest.raises(UserError, match=rf"{page}\), not a single run; give .*, such as .*repeat0\."):
                read(folder)


@pytest.mark.parametrize("damage", ["{broken", "[1, 2]", '{"problem": 1}', '{"step": "ten"}', ""])
def test_a_damaged_line_is_named_by_file_and_line(write_run: Callable[..., Path], tmp_path: Path, damage: str) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[6] = damage
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 7 is damaged"):
        RunFolder.read(folder)


def test_a_line_being_written_is_left_out_of_an_unfinished_run_only(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    for name, finished in (("unfinished", False), ("finished", True)):
        with (write_run(tmp_path / name, finished=finished) / "metrics.jsonl").open("a") as file:
            file.write('{"step": 20')
    assert len(RunFolder.read(tmp_path / "unfinished").metrics) == 40
    with pytest.raises(UserError, match="line 41"):
        RunFolder.read(tmp_path / "finished")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("result.json", "{", "result.json is not valid JSON"),
        ("result.json", "[]", "result.json must hold a JSON object, not a list"),
        ("environment.json", "nothing", "environment.json is not valid JSON"),
        ("config.toml", "a = = 1", "config.toml is not valid TOML"),
        ("gallery.json", "{}", "gallery.json lists no queries"),
    ],
)
def test_a_damaged_file_is_named(
    write_run: Callable[..., Path], tmp_path: Path, file: str, text: str, message: str
) -> None:
    folder = write_run(tmp_path / "run")
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=message):
        RunFolder.read(folder)


def test_runs_are_labelled_by_the_shortest_ending_that_tells_them_apart(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    paths = [write_run(tmp_path / first / second) for first in ("a", "b") for second in ("c2", "ms")]
    assert run_labels(read_runs(paths)) == ["a/c2", "a/ms", "b/c2", "b/ms"]
    assert run_labels(read_runs(paths[:2])) == ["c2", "ms"]


def test_a_run_given_twice_is_read_once_and_keeps_its_first_place(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    first, second = write_run(tmp_path / "x"), write_run(tmp_path / "a")
    runs = read_runs([first, second, tmp_path / "a" / ".." / "x"])
    assert [run.path for run in runs] == [first, second]


def test_only_finite_numbers_are_numbers() -> None:
    assert [number(value) for value in (1, 0.5, True, None, "1", float("nan"), float("inf"))] == [
        1.0,
        0.5,
        None,
        None,
        None,
        None,
        None,
    ]
