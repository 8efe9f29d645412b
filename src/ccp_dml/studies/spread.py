"""Compare the runs of a study: means, spreads, and differences in pairs of runs with the same seed."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from ccp_dml.evaluation import PairedDifference, paired_difference, spread
from ccp_dml.studies.study import FinishedRun


def difference(
    better: Sequence[FinishedRun], worse: Sequence[FinishedRun], half: str = "test"
) -> PairedDifference | None:
    """Subtract MAP@R of `worse` from that of `better`, repeat by repeat; None if no repeat has both."""
    scores = [{run.coordinates["repeat"]: run.score(half) / 100 for run in runs} for runs in (better, worse)]
    return paired_difference(*scores)


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
