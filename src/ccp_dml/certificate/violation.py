"""Measure how often the chance constraint is violated, with exact intervals, and the bound that training minimised."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import special  # scipy.stats holds the same, and takes seconds to import
from torch import Tensor

from ccp_dml.certificate import sampling
from ccp_dml.certificate.constraint import Constraint
from ccp_dml.certificate.distance_law import DistanceLaw, PairLaws


@dataclass(frozen=True)
class Interval:
    """An interval with both ends. An end is None if the draws are too few to bound that side."""

    low: float | None
    high: float | None


def clopper_pearson(hits: int, draws: int, confidence: float) -> Interval:
    """Compute the exact interval for a probability of which `draws` independent draws show `hits`.

    Draws with different probabilities are welcome: the interval then covers the mean of these probabilities, and errs
    on the safe side, because a sum of unequal draws varies less than a binomial one (Hoeffding 1956). This needs a
    `confidence` above one half.
    """
    _check_confidence(confidence)
    if not 0 <= hits <= draws:
        raise ValueError(f"hits must lie between 0 and the {draws} draws, got {hits}")
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(hits, draws - hits + 1, tail)) if hits > 0 else 0.0
    high = float(special.betaincinv(hits + 1, draws - hits, 1 - tail)) if hits < draws else 1.0
    return Interval(low, high)


def quantile_interval(values: Tensor, level: float, confidence: float) -> Interval:
    """Compute the exact interval for the `level` quantile of a distribution, from independent draws `values` (n,).

    Its ends are values themselves: the number of draws up to the quantile is binomial, whatever the distribution.
    """
    _check_confidence(confidence)
    tail, draws = (1 - confidence) / 2, len(values)
    ordered = torch.sort(values).values
    up_to = special.bdtr(np.arange(draws + 1), draws, level)  # the chance of at most 0, 1, ... of them
    first, last = (int(place) for place in np.searchsorted(up_to, [tail, 1 - tail]))
    return Interval(
        low=float(ordered[first - 1]) if draws and first >= 1 else None,
        high=float(ordered[last]) if last < draws else None,
    )


def _check_confidence(confidence: float) -> None:
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence}")


@dataclass(frozen=True)
class Rate:
    """A probability: the estimate from all pairs, and the interval from independent ones."""

    estimate: float | None  # None where the set has no such pair
    low: float
    high: float
    violations: int  # among the independent pairs
    pairs: int  # how many of these there are


@dataclass(frozen=True)
class Violation:
    """How often pairs of one kind are on the wrong side of beta."""

    by_images: Rate  # about further images of these classes
    by_classes: Rate  # about further classes like these
    all_pairs: int
    bound: float | None  # Markov: the mean contrastive term of all pairs over alpha; None without an alpha
    looseness: float | None  # the bound over the estimate; None where either is missing, or nothing is violated


@dataclass(frozen=True)
class IndependentDistances:
    """Distances (n,) of pairs that have no image in common, and of pairs that have no class in common."""

    same_by_images: Tensor
    same_by_classes: Tensor
    different_by_images: Tensor
    different_by_classes: Tensor


def draw_independent(embeddings: Tensor, labels: Tensor, generator: torch.Generator) -> IndependentDistances:
    """Draw independent pairs of `embeddings` (N, D) with `labels` (N,), by their labels alone."""

    def distances(pairs: Tensor) -> Tensor:
        return torch.linalg.vector_norm(embeddings[pairs[:, 0]] - embeddings[pairs[:, 1]], dim=1)

    return IndependentDistances(
        same_by_images=distances(sampling.same_class_pairs(labels, generator)),
        same_by_classes=distances(sampling.one_pair_per_class(labels, generator)),
        different_by_images=distances(sampling.different_class_pairs(labels, generator)),
        different_by_classes=distances(sampling.one_pair_per_two_classes(labels, generator)),
    )


def measure_violations(
    laws: PairLaws, drawn: IndependentDistances, constraint: Constraint, confidence: float
) -> dict[str, Violation]:
    """Measure `misses`, the same-class pairs at beta or farther, and `false_matches`, the others at beta or closer."""

    def rate(law: DistanceLaw, independent: Tensor) -> Rate:
        return _rate(law, independent, constraint.beta, confidence)

    near, far = constraint.margins()
    same = rate(laws.same_by_images, drawn.same_by_images), rate(laws.same_by_classes, drawn.same_by_classes)
    different = (
        rate(laws.different_by_images, drawn.different_by_images),
        rate(laws.different_by_classes, drawn.different_by_classes),
    )
    return {
        "misses": _violation(laws.same_by_images, *same, constraint, near),
        "false_matches": _violation(laws.different_by_images, *different, constraint, far),
    }


def _rate(law: DistanceLaw, drawn: Tensor, beta: float, confidence: float) -> Rate:
    wrong = int((drawn >= beta).sum() if law.is_same_class else (drawn <= beta).sum())
    interval = clopper_pearson(wrong, len(drawn), confidence)
    assert interval.low is not None
    assert interval.high is not None
    return Rate(law.wrong_rate(beta), interval.low, interval.high, wrong, len(drawn))


def _violation(law: DistanceLaw, by_images: Rate, by_classes: Rate, constraint: Constraint, margin: float) -> Violation:
    bound = None
    if constraint.alpha is not None:
        excess = law.mean_excess(margin, constraint.scaled)
        bound = None if excess is None else excess / constraint.alpha
    looseness = bound / by_images.estimate if bound is not None and by_images.estimate else None
    return Violation(by_images, by_classes, law.pairs, bound, looseness)
