"""Progress of a job that counts up: bytes that were fetched, images that were stored."""

from time import monotonic
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

QUIET_SECONDS = 10.0
"""How often a log file, which is no terminal, gets a line."""


class CountingProgress:
    """A bar per job in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, unit: Literal["bytes", "images"]) -> None:
        self.console = console
        self.unit = unit
        self.last_line = monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "CountingProgress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def report(self, job: str, done: int, total: int | None) -> None:
        if self.console.is_terminal:
            tasks = {task.description: task.id for task in self.bar.tasks}
            task = tasks.get(job)
            self.bar.update(self.bar.add_task(job) if task is None else task, completed=done, total=total)
        elif monotonic() - self.last_line > QUIET_SECONDS:
            self.last_line = monotonic()
            of = "" if total is None else f" of {total:,}"
            self.console.print(f"{job}: {done:,}{of} {self.unit}", highlight=False)
