"""What a person sees while a plan is trained."""

import io

import pytest
from rich.console import Console

from ccp_dml.commands.console import AS_IT_IS
from ccp_dml.commands.many_runs.plan_progress import PlanProgress
from ccp_dml.plans.plan import plan_run

RESULT = {"test": {"map_at_r": 0.25}, "best_step": 50, "steps": 100}


def watched(tmp_path, console):
    runs = [
        plan_run(name, tmp_path / name, ["features", "c2"], ["data.path=x.npz", "train.max_steps=100"])
        for name in ("[bold]/repeat0", "c2/repeat0")
    ]
    with PlanProgress(console, tmp_path / "log.txt", total=5, done=3) as progress:
        for run in runs:
            progress.started(run)
            progress.progress(run, 10, None)
            progress.progress(run, 25, 0.125)
            if progress.bar is not None:
                progress.bar.refresh()
        progress.finished(runs[0], RESULT)
        progress.failed(runs[1], "out of memory [really]")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_starts_ends_and_failures_are_told_and_logged(tmp_path, is_terminal):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120, **AS_IT_IS)
    watched(tmp_path, console)
    shown, log = console.file.getvalue(), (tmp_path / "log.txt").read_text()
    for text in (shown, log):
        assert "3 of 5 runs are done already." in text
        assert "[bold]/repeat0: started" in text
        assert "[bold]/repeat0: done (4/5), MAP@R 0.2500 on the test classes, best step 50 of 100" in text
        assert "c2/repeat0: FAILED: out of memory [really]" in text
        assert "\\[bold]" not in text  # a name is shown as it is, above the bars and beside them
    assert len(log.splitlines()) == 5
    assert ("best MAP@R 0.1250" in shown) == is_terminal
    assert ("25/100 steps" in shown) == is_terminal
    assert ("1 failed" in shown) == is_terminal
