"""Add up the time of something that happens again and again."""

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
