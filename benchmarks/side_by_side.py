"""Measure two ways to do the same thing in turns, so that whatever else the machine does hits both alike.

How to write a benchmark: a script in this folder with

    def measure(quick: bool) -> list[Claim]: ...

    if __name__ == "__main__":
        main(__doc__, measure)

`measure` makes the inputs, asserts that both ways give the same result, and times them with `compare`. The script then
prints its claims as a table; `python benchmarks/run_all.py` (`make bench`) runs all such scripts and writes
docs/performance.md from what they return. A claim is a ratio: no absolute time of a machine is ever claimed.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

STATUS, SET_BACK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
ROW = ("case", "ratio", "quartiles", "wanted", "reached")


@dataclass(frozen=True)
class Claim:
    """How many times as long (or as large) theirs is as ours, measured again and again."""

    title: str  # of the table it stands in
    case: str
    pairs: Sequence[tuple[float, float]]  # (ours, theirs) of each repeat, in seconds or bytes
    ours: str = "ours"
    theirs: str = "pytorch-metric-learning"
    at_least: float | None = None  # the ratio that is wanted, where a large one is
    at_most: float | None = None  # ... where a small one is
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        return sorted(theirs / ours for ours, theirs in self.pairs)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.pairs) < 3:
            return self.ratios[0], self.ratios[-1]
        lower, _, upper = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return lower, upper

    @property
    def reached(self) -> bool | None:
        """Whether the median is as wanted; None where nothing is."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return None if self.at_most is None else self.ratio <= self.at_most

    def cells(self) -> tuple[str, ...]:
        """The claim in words, as a row under `ROW`."""
        wanted = "" if self.at_most is None else f"at most {self.at_most:g}"
        wanted = wanted if self.at_least is None else f"at least {self.at_least:g}"
        lower, upper = self.quartiles
        goal = self.at_least or self.at_most
        missed = "" if goal is None else f"no, by {abs(self.ratio / goal - 1):.0%}"
        reached = {True: "yes", False: missed, None: ""}[self.reached]
        return (
            self.case,
            f"{self.ratio:.3g}",
            f"{lower:.3g} to {upper:.3g}" if len(self.pairs) > 1 else "one measurement",
            wanted,
            reached,
        )


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int, calls: int = 1, *, warm_up: bool = True
) -> list[tuple[float, float]]:
    """Processor seconds of both, repeat by repeat, after one untimed call each; waiting for a core does not count.

    The order alternates, so that what one leaves in the caches is not always the other's. `calls` are timed at once.
    Without `warm_up` there are no untimed calls, for what takes so long that a first call makes no difference.
    """
    seconds = []
    if warm_up:
        ours(), theirs()
    for repeat in range(repeats):
        taken = {}
        for call in (ours, theirs) if repeat % 2 else (theirs, ours):
            started = time.process_time()
            for _ in range(calls):
                call()
            taken[call] = time.process_time() - started
        seconds.append((taken[ours], taken[theirs]))
    return seconds


def resident(name: str) -> int:
    """Read the bytes of this process in memory: now ("VmRSS") or at most ("VmHWM")."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text("utf-8"))
    assert found is not None
    return int(found[1]) * 1024


def peak_of(call: Callable[[], object]) -> int:
    """Call, and read the peak of this process's memory meanwhile, in bytes. Linux alone can set back a peak."""
    SET_BACK.write_text("5", "utf-8")
    call()
    return resident("VmHWM")


def in_own_process(script: str, *arguments: str) -> float:
    """Run a benchmark's `script` with `arguments`, and read the number that it prints: a fresh process holds little."""
    command = [sys.executable, script, *arguments]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def tables(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Claims by the title of their table, which says what is divided by what."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(f"{claim.title}: {claim.theirs} / {claim.ours}", []).append(claim)
    return found


def show(claims: Sequence[Claim]) -> None:
    for title, rows in tables(claims).items():
        table = Table(*ROW, title=title)
        for claim in rows:
            table.add_row(*claim.cells())
        Console(width=140).print(table)
        for note in dict.fromkeys(claim.note for claim in rows if claim.note):
            print(note)


def main(description: str, measure: Callable[[bool], list[Claim]]) -> None:
    """Run one benchmark as a script."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller inputs: under a minute")
    parser.add_argument("--threads", type=int, default=1, help="one by default: processor time then means the same")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    show(measure(options.quick))
