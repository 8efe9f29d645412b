"""Time two ways to do the same thing in turns, so that whatever else the machine does hits both alike."""

import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table


def interleaved_medians(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median processor seconds of each, after one untimed call of both; waiting for a core does not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    ours(), theirs()
    for _ in range(repeats):
        for call, record in zip((ours, theirs), seconds, strict=True):
            started = time.process_time()
            call()
            record.append(time.process_time() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


class RatioTable:
    """A table with a row per case: our milliseconds, theirs, and how many times ours goes into theirs."""

    def __init__(self, title: str, *cases: str) -> None:
        self.table = Table(title=title)
        for case in cases:
            self.table.add_column(case)
        for column in ("ours ms", "theirs ms", "theirs / ours"):
            self.table.add_column(column, justify="right")

    def add(self, *case: str, ours: float, theirs: float) -> None:
        self.table.add_row(*case, f"{ours * 1e3:.2f}", f"{theirs * 1e3:.2f}", f"{theirs / ours:.1f}x")

    def print(self) -> None:
        Console(width=100).print(self.table)
