"""Show progress, of a run or of a counted job: live bars in a terminal, plain lines in a log file."""

from time import monotonic
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ccp_dml.config.schema import Config
from ccp_dml.runs.watcher import Watcher

QUIET_SECONDS = 10.0
"""A log file gets a line for a new problem, for the last evaluation, and otherwise no more often than this."""


class ProgressWatcher(Watcher):
    """Shows step, loss, current and best MAP@R, problem, images per second and the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar: Progress | None = None
        self.images_per_step = 1
        self.speed = 0.0  # images per second over the last window, evaluation left out
        self.window_start, self.window_step = monotonic(), 0
        self.last_line, self.problem = 0.0, 0

    def note(self, text: str) -> None:
        self.console.print(text, style="yellow", soft_wrap=True)

    def extracting(self, done: int, total: int) -> None:
        self.count("Features", done, total)

    def reading_test(self, done: int, total: int) -> None:
        self.count("Reading test images", done, total)

    def count(self, what: str, done: int, total: int) -> None:
        """Show how far a job before training is; the bar of a finished one leaves."""
        if not self.console.is_terminal:
            if done == total or monotonic() - self.last_line > QUIET_SECONDS:
                self.console.print(f"{what} {done:,} of {total:,}")
                self.last_line = monotonic()
            return
        if self.bar is None:
            counted = TextColumn(what + " {task.completed:,.0f}/{task.total:,.0f}")
            self.bar = self.started_bar(counted, BarColumn(bar_width=24), total=total)
        self.bar.update(self.task, completed=done)
        if done == total:
            self.close()

    def start(self, config: Config, step: int) -> None:
        self.images_per_step = config.train.batch_size
        self.window_start, self.window_step = monotonic(), step
        if self.console.is_terminal:
            most = config.train.max_steps
            counted = TextColumn("step {task.completed:.0f}" + (f"/{most}" if most else ""))
            state = TextColumn("{task.fields[state]}", markup=False)
            self.bar = self.started_bar(counted, BarColumn(bar_width=24), state, total=most, completed=step, state="")

    def started_bar(self, *columns: ProgressColumn, **task: Any) -> Progress:
        """Show a bar with these columns and the times that have passed and are left, for one task."""
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        bar = Progress(*columns, *times, console=self.console, refresh_per_second=4)
        self.task = bar.add_task("", **task)
        bar.start()
        return bar

    def before_training(self, row: dict[str, Any]) -> None:
        self.window_start = monotonic()
        state = f"MAP@R {row['map_at_r']:.4f} before training"
        if self.bar is not None:
            self.bar.update(self.task, state=state)
        else:
            self.console.print(f"step 0  {state}", highlight=False, soft_wrap=True)

    def step(self, step: int) -> None:
        elapsed = monotonic() - self.window_start
        if elapsed > 0 and step > self.window_step:
            self.speed = (step - self.window_step) * self.images_per_step / elapsed
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def evaluation(self, row: dict[str, Any], best: float) -> None:
        self.window_start, self.window_step = monotonic(), row["step"]
        state = (
            f"loss {row['loss']:.4f}  MAP@R {row['map_at_r']:.4f} (best {best:.4f})  "
            f"problem {row['problem']}  {self.speed:,.0f} images/s"
        )
        if self.bar is not None:
            self.bar.update(self.task, state=state)
        elif row["problem"] != self.problem or monotonic() - self.last_line > QUIET_SECONDS:
            self.console.print(f"step {row['step']}  {state}", soft_wrap=True)
            self.last_line = monotonic()
        self.problem = row["problem"]

    def finishing(self) -> None:
        self.close()
        self.console.print("Scoring the test half ...")

    def close(self) -> None:
        """Give the terminal back, also after an error or Ctrl-C."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class CountingProgress:
    """A bar per job in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, unit: Literal["bytes", "images"]) -> None:
        self.console = console
        self.unit = unit
        self.last_line = monotonic()
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "CountingProgress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def report(self, job: str, done: int, total: int | None) -> None:
        if self.console.is_terminal:
            tasks = {task.description: task.id for task in self.bar.tasks}
            task = tasks.get(job)
            self.bar.update(self.bar.add_task(job) if task is None else task, completed=done, total=total)
        elif monotonic() - self.last_line > QUIET_SECONDS:
            self.last_line = monotonic()
            of = "" if total is None else f" of {total:,}"
            self.console.print(f"{job}: {done:,}{of} {self.unit}")
