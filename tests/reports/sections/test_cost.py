import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ccp_dml.records.run_folder import read_runs
from ccp_dml.reports.sections.cost import Cost, cost


def rewrite(run: Path, **changes: object) -> None:
    """Change or, with None, drop entries of every line of the log."""
    rows = [json.loads(line) | changes for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if value is not None} for row in rows]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))


def test_time_is_split_into_steps_evaluation_and_reselection(two_runs: list[Path]) -> None:
    _, ccp = map(Cost.of, read_runs(two_runs))
    assert (ccp.steps, ccp.seconds) == (2000, pytest.approx(168))
    assert ccp.evaluation == pytest.approx(32)
    assert ccp.reselection == pytest.approx(0.8)
    assert ccp.training == pytest.approx(168 - 32 - 0.8)
    assert ccp.seconds_per_step == pytest.approx((168 - 32 - 0.8) / 2000)
    assert ccp.shares() == pytest.approx({"steps": 135.2 / 168, "evaluation": 32 / 168, "reselection": 0.8 / 168})
    assert ccp.seconds_to_best == pytest.approx(4.2 * 39)


def test_older_runs_count_everything_as_steps(two_runs: list[Path]) -> None:
    rewrite(two_runs[0], evaluation_seconds=None, reselection_seconds=None)
    old, _ = map(Cost.of, read_runs(two_runs))
    assert (old.training, old.shares()) == (None, {})
    assert old.seconds_per_step == pytest.approx(168 / 2000)
    section = cost(read_runs(two_runs[:1]))
    assert section is not None
    assert not section.content["steps_alone"]
    assert "Evaluation" not in section.content["titles"]


def test_several_runs_are_ratios_to_the_first(two_runs: list[Path]) -> None:
    rewrite(two_runs[0], seconds=100.0, evaluation_seconds=20.0)
    rewrite(two_runs[1], seconds=130.0, evaluation_seconds=30.0, reselection_seconds=10.0)
    for run, size in zip(two_runs, (1_000_000_000, 1_500_000_000), strict=True):
        result = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps(result | {"peak_memory": {"process": size}}))
    section = cost(read_runs(two_runs))
    assert section is not None
    cells = zip(*(row["cells"] for row in section.content["rows"]), strict=True)
    columns = dict(zip(section.content["titles"], cells, strict=True))
    assert columns["Time per step"] == (("40.0 ms", None), ("45.0 ms", pytest.approx(1.125)))
    assert columns["Peak memory"] == (("1,000 MB", None), ("1,500 MB", pytest.approx(1.5)))
    assert columns["Evaluation"] == (("20.0 %", None), ("23.1 %", None))  # a share of a share says nothing
    assert "Peak GPU memory" not in columns


def test_the_mean_of_runs_says_what_all_of_them_recorded(two_runs: list[Path]) -> None:
    rewrite(two_runs[0], seconds=100.0, reselection_seconds=None)
    average = Cost.mean([Cost.of(run) for run in read_runs(two_runs)])
    assert average.seconds == pytest.approx(134)
    assert average.steps == 2000
    assert average.reselection is None


def test_a_run_without_a_log_cost_nothing_that_is_known(write_run: Callable[..., Path], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", finished=False)
    (run / "metrics.jsonl").unlink()
    assert cost(read_runs([run])) is None
