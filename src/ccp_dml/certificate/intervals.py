"""Exact intervals from independent yes-or-no draws, and for a quantile from independent values."""

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """Both ends belong to it. None where the draws are too few to say more than that nothing is known on this side."""

    low: float | None
    high: float | None


def clopper_pearson(hits: int, draws: int, confidence: float) -> Interval:
    """The exact interval for a probability of which `draws` independent draws show `hits`.

    Draws with different probabilities are welcome: the interval then covers the mean of these probabilities, and errs
    on the safe side, because a sum of unequal draws varies less than a binomial one (Hoeffding 1956). This needs a
    `confidence` above one half.
    """
    _check_confidence(confidence)
    if not 0 <= hits <= draws:
        raise ValueError(f"hits must lie between 0 and the {draws} draws, got {hits}")
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, hits, draws - hits + 1)) if hits > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, hits + 1, draws - hits)) if hits < draws else 1.0
    return Interval(low, high)


def quantile_interval(values: Tensor, level: float, confidence: float) -> Interval:
    """The exact interval for the `level` quantile of a distribution of which `values` (n,) are independent draws.

    Its ends are values themselves: the number of draws up to the quantile is binomial, whatever the distribution.
    """
    _check_confidence(confidence)
    tail, draws = (1 - confidence) / 2, len(values)
    ordered = torch.sort(values).values
    first, last = (int(stats.binom.ppf(part, draws, level)) for part in (tail, 1 - tail))
    return Interval(
        low=float(ordered[first - 1]) if draws and first >= 1 else None,
        high=float(ordered[last]) if last < draws else None,
    )


def _check_confidence(confidence: float) -> None:
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence}")
