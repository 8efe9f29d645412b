"""Show how a plan is trained: all runs and the current ones in a terminal, plain lines in a log."""

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ccp_dml.plans.plan import PlannedRun
from ccp_dml.plans.runner import PlanWatcher


class PlanProgress(PlanWatcher):
    """Shows how many runs are done, and of each current run the step and the best validation MAP@R.

    Args:
        console: where to show it; plain lines where that is no terminal.
        log: a file that gets a line when a run starts and when it ends.
        total: the number of runs, of which `done` need no training.
    """

    def __init__(self, console: Console, log: Path, total: int, done: int) -> None:
        self.console, self.log, self.total, self.done, self.failures = console, log, total, done, 0
        self.bar: Progress | None = None
        self.current: dict[str, TaskID] = {}

    def __enter__(self) -> "PlanProgress":
        self.line(
            f"{self.done} of {self.total} runs are done already." if self.done else f"{self.total} runs to train."
        )
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}{task.fields[limit]}"),
                TextColumn("{task.fields[state]}", markup=False),
                TimeElapsedColumn(),
                console=self.console,
                refresh_per_second=4,
            )
            self.all = self.bar.add_task(
                "runs", total=self.total, completed=self.done, limit=f"/{self.total}", state=""
            )
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def note(self, text: str) -> None:
        self.line(text)

    def started(self, run: PlannedRun) -> None:
        self.line(f"{run.name}: started")
        if self.bar is not None:
            limit = f"/{run.steps} steps" if run.steps else " steps"
            self.current[run.name] = self.bar.add_task(run.name, total=run.steps, limit=limit, state="")

    def progress(self, run: PlannedRun, step: int, best: float | None) -> None:
        if self.bar is not None:
            state = "" if best is None else f"best MAP@R {best:.4f}"
            self.bar.update(self.current[run.name], completed=step, state=state)

    def finished(self, run: PlannedRun, result: dict[str, Any]) -> None:
        self.done += 1
        half = "validation" if run.is_supervised else "test"  # whoever supervises runs must not choose by the test half
        self.line(
            f"{run.name}: done ({self.done}/{self.total}), MAP@R {result[half]['map_at_r']:.4f} on the {half} classes, "
            f"best step {result['best_step']} of {result['steps']}"
        )
        self.forget(run)

    def stopped(self, run: PlannedRun) -> None:
        self.done += 1
        self.line(f"{run.name}: stopped early ({self.done}/{self.total}), as others were better by then")
        self.forget(run)

    def failed(self, run: PlannedRun, message: str) -> None:
        self.failures += 1
        self.line(f"{run.name}: FAILED: {message}")
        self.forget(run)

    def forget(self, run: PlannedRun) -> None:
        if self.bar is not None:
            self.bar.remove_task(self.current.pop(run.name))
            self.bar.update(self.all, completed=self.done, state=f"{self.failures} failed" if self.failures else "")

    def line(self, text: str) -> None:
        """Print a line to the log and, above the bars, to the console."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().isoformat(sep=' ', timespec='seconds')}  {text}\n")
        self.console.print(text, soft_wrap=True)
