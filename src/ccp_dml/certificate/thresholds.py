"""Which distance to call a match: the threshold for a wanted false-match rate, and what each rate costs in misses."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ccp_dml.certificate.distance_law import DistanceLaw, PairLaws

CURVE_RATES = tuple(10 ** (exponent / 10) for exponent in range(-50, 1))
"""False-match rates at which curves are drawn: ten per decade, from 1e-5 to 1."""


@dataclass(frozen=True)
class OperatingPoint:
    """What calling pairs up to the distance `beta` a match does."""

    beta: float
    false_match_rate: float
    miss_rate: float


@dataclass(frozen=True)
class CurvePoint:
    """The largest threshold whose false-match rate is at most `wanted`: where sets can be compared."""

    wanted: float
    reached: OperatingPoint


def threshold_for(law: DistanceLaw, wanted: float) -> float | None:
    """Find the largest threshold whose false-match rate is at most `wanted`; None if there are no pairs.

    `law` is of different-class pairs. Zero where even identical embeddings are too often of different classes.
    """
    if not law.pairs:
        return None
    return float(law.thresholds[_last_within(law.wrong_rates(), wanted)])


def trade_off(laws: PairLaws, rates: Sequence[float] = CURVE_RATES) -> list[CurvePoint]:
    """Trace the DET curve: for each of the ascending `rates`, the largest threshold that keeps to it, and its misses.

    Rates that so few pairs cannot show are left out. Both rates are monotone along the curve.
    """
    if not (laws.same_by_images.pairs and laws.different_by_images.pairs):
        return []
    false_matches, missed = (law.wrong_rates() for law in (laws.different_by_images, laws.same_by_images))
    points = []
    for rate in rates:
        if rate * laws.different_by_images.pairs >= 1:
            place = _last_within(false_matches, rate)
            beta = float(laws.different_by_images.thresholds[place])
            points.append(CurvePoint(rate, OperatingPoint(beta, float(false_matches[place]), float(missed[place]))))
    return points


def equal_error(laws: PairLaws) -> OperatingPoint | None:
    """Find where misses and false matches are equally frequent, as nearly as the thresholds allow."""
    if not (laws.same_by_images.pairs and laws.different_by_images.pairs):
        return None
    false_matches, missed = (law.wrong_rates() for law in (laws.different_by_images, laws.same_by_images))
    place = int((false_matches - missed).abs().argmin())
    beta = float(laws.same_by_images.thresholds[place])
    return OperatingPoint(beta, float(false_matches[place]), float(missed[place]))


def _last_within(rates: Tensor, wanted: float) -> int:
    """Find the place of the largest threshold whose false-match rate, of `rates` (T,), is at most `wanted`; else 0.

    Rounding in the sums may put a rate a hair above the wanted one that it equals.
    """
    within = (rates <= wanted * (1 + 1e-9)).nonzero()
    return int(within.max()) if len(within) else 0
