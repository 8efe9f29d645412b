"""Add up the time of something that happens again and again."""

from collections.abc import Callable
from time import monotonic


class Stopwatch:
    """Adds up the seconds spent in `with stopwatch:` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += monotonic() - self._started


class LapTimer:
    """Adds up the seconds of named parts that follow each other: `begin()`, then `lap(name)` at the end of each.

    Args:
        wait: called before the clock is read, where work goes on behind the caller's back, as on a GPU.
    """

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self.wait = wait
        self.seconds: dict[str, float] = {}
        self._last = 0.0

    def begin(self) -> None:
        """Forget what was added up; the first part starts now."""
        self.seconds = {}
        self._last = self._now()

    def lap(self, name: str) -> None:
        """End the part `name`, and start the next one."""
        now = self._now()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    def _now(self) -> float:
        if self.wait is not None:
            self.wait()
        return monotonic()
