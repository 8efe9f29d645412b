"""How sure a study may be of its numbers, in words: n, standard deviation, and what lies within noise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from ccp_dml.evaluation import Spread, mean_interval, spread
from ccp_dml.studies.study import FinishedRun


@dataclass(frozen=True)
class Difference:
    """What one setting has over another, over pairs of runs with the same seed; in percentage points."""

    spread: Spread

    @property
    def mean(self) -> float:
        return self.spread.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """Compute the 95 % confidence interval of the mean (Student's t); None for a single pair."""
        return mean_interval(self.spread)

    @property
    def is_within_noise(self) -> bool | None:
        """Tell whether the interval holds 0; None if the noise is unknown."""
        return None if self.interval is None else self.interval[0] <= 0 <= self.interval[1]

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:+.2f} points (one pair of runs: noise unknown)"
        low, high = self.interval
        verdict = "within noise" if self.is_within_noise else "beyond noise"
        return f"{self.mean:+.2f} points (n = {self.spread.n}, 95 % interval {low:+.2f} to {high:+.2f}: {verdict})"


def difference(better: Sequence[FinishedRun], worse: Sequence[FinishedRun], half: str = "test") -> Difference | None:
    """Subtract MAP@R of `worse` from that of `better`, repeat by repeat; None if no repeat has both."""
    scores = [{run.coordinates["repeat"]: run.score(half) for run in runs} for runs in (better, worse)]
    gaps = [scores[0][repeat] - scores[1][repeat] for repeat in scores[0].keys() & scores[1].keys()]
    return Difference(spread(gaps)) if gaps else None


def in_words(values: Sequence[float]) -> str:
    """Write mean and deviation, as in "19.2 ± 0.3 (n = 3)"."""
    found = spread(values)
    return f"{found.mean:.1f} (n = 1)" if found.sd is None else f"{found.mean:.1f} ± {found.sd:.1f} (n = {found.n})"


def at(runs: Iterable[FinishedRun], **wanted: Any) -> list[FinishedRun]:
    """Select the runs at the given coordinates."""
    return [run for run in runs if all(run.coordinates[name] == value for name, value in wanted.items())]


def mean_score(runs: Sequence[FinishedRun], half: str = "test") -> float | None:
    """Average MAP@R in percent; None without runs."""
    return mean(run.score(half) for run in runs) if runs else None


def sd_score(runs: Sequence[FinishedRun], half: str = "test") -> float | None:
    return spread([run.score(half) for run in runs]).sd if runs else None
