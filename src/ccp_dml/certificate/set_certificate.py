"""All that is certified of one set of embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.certificate.constraint import Constraint
from ccp_dml.certificate.covering import Covering, covered_by_own_images, covered_by_proxies
from ccp_dml.certificate.distance_law import pair_laws, threshold_grid
from ccp_dml.certificate.thresholds import CurvePoint, OperatingPoint, equal_error, threshold_for, trade_off
from ccp_dml.certificate.violation import (
    IndependentDistances,
    Interval,
    Violation,
    draw_independent,
    measure_violations,
    quantile_interval,
)


@dataclass(frozen=True)
class EmbeddedSet:
    """Images of a set, embedded and normalised, with what they were drawn from."""

    embeddings: Tensor  # (N, D) float64
    labels: Tensor  # (N,) int64, indices of class_names
    class_names: Sequence[str]
    drawn: IndependentDistances
    of_images: int  # how many the whole set has
    of_classes: int

    @classmethod
    def make(
        cls,
        embeddings: Tensor,
        labels: Tensor,
        class_names: Sequence[str],
        generator: torch.Generator,
        of_images: int,
        of_classes: int,
    ) -> "EmbeddedSet":
        """Draw the independent pairs once, so that every statement about the set is about the same pairs."""
        embeddings, labels = embeddings.double().cpu(), labels.cpu()
        return cls(
            embeddings, labels, class_names, draw_independent(embeddings, labels, generator), of_images, of_classes
        )


@dataclass(frozen=True)
class Threshold:
    """The distance up to which to call two images a match, so that so many different ones are matched falsely."""

    wanted: float  # the false-match rate
    beta: float  # from all pairs
    interval: Interval  # at its low end the rate is kept with confidence, at its high end it is not


@dataclass(frozen=True)
class SetCertificate:
    images: int
    classes: int
    of_images: int
    of_classes: int
    unit_length: float  # the share of images whose embedding is as long as 1
    misses: Violation  # same-class pairs on the wrong side of the constraint's beta
    false_matches: Violation  # different-class pairs on the wrong side
    at_threshold: dict[str, Violation] | None  # both again, at the threshold for the wanted false-match rate
    equal_error: OperatingPoint | None
    trade_off: list[CurvePoint]
    covering: Covering
    covering_by_proxies: Covering | None


def choose_threshold(part: EmbeddedSet, wanted: float, confidence: float) -> Threshold | None:
    """Choose the threshold for a `wanted` false-match rate on pairs of `part`; None if it has no two classes."""
    laws = pair_laws(part.embeddings, part.labels, threshold_grid(part.embeddings))
    beta = threshold_for(laws.different_by_images, wanted)
    if beta is None:
        return None
    return Threshold(wanted, beta, quantile_interval(part.drawn.different_by_images, wanted, confidence))


def certify_set(
    part: EmbeddedSet,
    constraint: Constraint,
    threshold: Threshold | None,
    confidence: float,
    proxies: Mapping[str, Tensor] | None = None,
) -> SetCertificate:
    """Measure `part` against `constraint` and `threshold`; `proxies` (P, D) by class name, if its classes have any."""
    also = (constraint.beta, *constraint.margins(), *([] if threshold is None else [threshold.beta]))
    grid = threshold_grid(part.embeddings, *also)
    laws = pair_laws(part.embeddings, part.labels, grid, constraint.scaled)
    plain = None if threshold is None else Constraint(threshold.beta, None, "distance", "the threshold")
    lengths = torch.linalg.vector_norm(part.embeddings, dim=1)
    return SetCertificate(
        images=len(part.labels),
        classes=len(torch.unique(part.labels)),
        of_images=part.of_images,
        of_classes=part.of_classes,
        unit_length=float((lengths > 1 - 1e-4).double().mean()),
        **measure_violations(laws, part.drawn, constraint, confidence),
        at_threshold=None if plain is None else measure_violations(laws, part.drawn, plain, confidence),
        equal_error=equal_error(laws),
        trade_off=trade_off(laws),
        covering=covered_by_own_images(part.embeddings, part.labels, part.class_names),
        covering_by_proxies=None
        if not proxies
        else covered_by_proxies(part.embeddings, part.labels, part.class_names, proxies),
    )
