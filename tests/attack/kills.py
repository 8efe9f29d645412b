"""Disturb a work, run it again, and compare with the undisturbed one."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from attack.disturbances import (
    Disturbance,
    clock_jumps_at,
    full_at,
    full_within_a_write,
    kill_at,
    kill_within_a_write,
    signal_at,
)
from attack.verdicts import CLEAR, FINE, HANG, SILENT, TRACE, Ended, in_child
from attack.works import Work

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
YEARS = 365 * 86400.0


def whole_of(work: Work, folder: Path) -> Path:
    """Do a work undisturbed, once."""
    whole = folder / "whole" / work.name
    if not whole.exists():
        whole.parent.mkdir(parents=True, exist_ok=True)
        ended = in_child(lambda: work.run(whole))
        assert ended.code == 0, f"{work.name} fails undisturbed: {ended}"
    return whole


def disturb(work: Work, how: Disturbance, whole: Path) -> tuple[str, str] | None:
    """Disturb `work`, and run it again; the verdict, or None where it ended before the disturbance came."""
    out = whole.parent / "disturbed" / work.name
    shutil.rmtree(out.parent, ignore_errors=True)
    out.parent.mkdir()

    def disturbed() -> int | None:
        how.prepare()
        return work.run(out)

    name = f"{work.name}, {how.name}"
    first = in_child(disturbed)
    hit_a_child = first.code == 1 and "the same command" in first.said  # of a benchmark or study, which tells it
    if (bad := badly_ended(first, (0, *how.ends, *([1] if hit_a_child else [])))) is not None:
        return bad[0], f"{name}: {bad[1]}"
    if first.code != 0:
        if how.clear and not first.said.strip():
            return SILENT, f"{name}: ended with {first.code} and not a word"
        again = in_child(lambda: work.run(out))
        if (bad := badly_ended(again, (0,))) is not None:
            return bad[0], f"{name}: could not go on: {bad[1]}"
    if work.outcome(out) != work.outcome(whole):
        return SILENT, f"{name}: another outcome"
    if first.code == 0 and how.ends:
        return None
    return (CLEAR if how.clear else FINE), first.said


def badly_ended(ended: Ended, expected: tuple[int, ...]) -> tuple[str, str] | None:
    if ended.code is None:
        return HANG, "no end"
    if "Traceback" in ended.said or ended.code not in expected:
        return TRACE, f"ended with {ended.code} instead of {expected}: {ended.said[-3000:]}"
    return None


def sizes_of(whole: Path, draw: random.Random) -> Iterator[int]:
    """Draw sizes without end at which to cut a write: a place within some file of the undisturbed work."""
    files = [path.stat().st_size for path in sorted(whole.rglob("*")) if path.is_file()]
    while True:
        yield draw.randrange(max(1, draw.choice(files)))


def series(whole: Path, draw: random.Random) -> dict[str, Iterator[Disturbance]]:
    """Make all kinds of disturbances of a work, each without end: events in their order, sizes by chance."""
    counts = range(1, 1_000_000)
    return {
        "kill at an event": map(kill_at, counts),
        "kill within a write": map(kill_within_a_write, sizes_of(whole, draw)),
        "full disk at an event": map(full_at, counts),
        "full disk within a write": map(full_within_a_write, sizes_of(whole, draw)),
        "signal": (signal_at(event, SIGNALS[event % 3]) for event in counts),
        "clock jumps": (clock_jumps_at(event, draw.choice((-1, 1)) * draw.random() * YEARS) for event in counts),
    }
