"""How often the chance constraint is violated, with an exact interval, and the bound that training made small."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.certificate import independent_pairs
from ccp_dml.certificate.constraint import Constraint
from ccp_dml.certificate.distance_law import DistanceLaw, PairLaws
from ccp_dml.certificate.intervals import clopper_pearson


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
    """Independent pairs of `embeddings` (N, D) with `labels` (N,), drawn by their labels alone."""

    def distances(pairs: Tensor) -> Tensor:
        return torch.linalg.vector_norm(embeddings[pairs[:, 0]] - embeddings[pairs[:, 1]], dim=1)

    return IndependentDistances(
        same_by_images=distances(independent_pairs.same_class_pairs(labels, generator)),
        same_by_classes=distances(independent_pairs.one_pair_per_class(labels, generator)),
        different_by_images=distances(independent_pairs.different_class_pairs(labels, generator)),
        different_by_classes=distances(independent_pairs.one_pair_per_two_classes(labels, generator)),
    )


def misses(laws: PairLaws, drawn: IndependentDistances, constraint: Constraint, confidence: float) -> Violation:
    """Same-class pairs at beta or farther."""
    rates = (
        _rate(laws.same_by_images, drawn.same_by_images, constraint.beta, confidence),
        _rate(laws.same_by_classes, drawn.same_by_classes, constraint.beta, confidence),
    )
    return _violation(laws.same_by_images, *rates, constraint, constraint.margins()[0])


def false_matches(laws: PairLaws, drawn: IndependentDistances, constraint: Constraint, confidence: float) -> Violation:
    """Different-class pairs at beta or closer."""
    rates = (
        _rate(laws.different_by_images, drawn.different_by_images, constraint.beta, confidence),
        _rate(laws.different_by_classes, drawn.different_by_classes, constraint.beta, confidence),
    )
    return _violation(laws.different_by_images, *rates, constraint, constraint.margins()[1])


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
