"""metrics.jsonl: written line by line, read whole or as far as a killed run came."""

from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.evaluation_log import EvaluationLog

TORN = '{"step": 3'


@pytest.fixture
def log(tmp_path: Path) -> EvaluationLog:
    """Three evaluations."""
    log = EvaluationLog(tmp_path)
    for step in (10, 20, 30):
        log.append({"step": step, "loss": 0.1 * step})
    return log


def tear(log: EvaluationLog) -> None:
    with log.file.open("a") as file:
        file.write(TORN)


def test_what_is_appended_is_read_back(log: EvaluationLog) -> None:
    assert [row["step"] for row in log.rows(may_be_torn=False)] == [10, 20, 30]
    assert log.rows(may_be_torn=False)[1]["loss"] == 0.1 * 20
    assert log.last_step() == 30


def test_there_may_be_no_file(tmp_path: Path) -> None:
    log = EvaluationLog(tmp_path)
    assert (log.rows(may_be_torn=False), log.last_step()) == ([], 0)


def test_a_torn_line_counts_only_where_none_may_be(log: EvaluationLog) -> None:
    tear(log)
    assert len(log.rows(may_be_torn=True)) == 3
    assert log.last_step() == 30
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 4 is damaged"):
        log.rows(may_be_torn=False)


def test_lines_after_the_checkpoint_are_dropped_and_the_rest_stays_as_it_was(log: EvaluationLog) -> None:
    before = log.file.read_text().splitlines(keepends=True)
    tear(log)
    log.forget_after(20)
    assert log.file.read_text() == "".join(before[:2])


@pytest.mark.parametrize("step", [15, 40])
def test_a_checkpoint_without_its_line_is_refused(log: EvaluationLog, step: int) -> None:
    before = log.file.read_text()
    with pytest.raises(UserError, match=f"lost the lines up to step {step}"):
        log.forget_after(step)
    assert log.file.read_text() == before


def test_a_run_without_a_checkpoint_starts_with_an_empty_log(log: EvaluationLog) -> None:
    log.forget_after(0)
    assert log.file.read_text() == ""
