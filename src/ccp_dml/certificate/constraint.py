"""The chance constraint P[y(d - beta) >= 0] <= eps, and the loss whose expectation bounds it (Markov)."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from ccp_dml.errors import UserError

Scale = Literal["distance", "half squared distance"]

ORIGINS: dict[Scale, str] = {
    "distance": "half-way between the margins of the loss",
    "half squared distance": "where the similarity margin of the loss puts it",
}
"""Where the beta of a loss comes from, by the scale of its alpha."""

FARTHEST = 2.0
"""No two vectors of the unit ball are farther apart, and every normalisation ends there."""


@dataclass(frozen=True)
class Constraint:
    """Pairs of a class should be closer than `beta`, all others farther; both are distances.

    With an `alpha`, the expectation of `(y(v - beta') + alpha)_+` over `alpha` bounds the probability of the opposite.
    Here `v` is the distance, or half its square where the loss was made of those, and `beta'` is `beta` on that scale.
    """

    beta: float
    alpha: float | None
    scale: Scale
    origin: str  # where beta comes from, to be read after "beta = 0.6, "

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise ValueError(f"beta is a distance and cannot be negative, got {self.beta}")
        if self.alpha is not None and not 0 < self.alpha <= self.scaled_beta * (1 + 1e-12):
            raise ValueError(f"alpha must be above 0 and at most {self.scaled_beta}, got {self.alpha}")

    @property
    def scaled_beta(self) -> float:
        return self.beta if self.scale == "distance" else self.beta**2 / 2

    def scaled(self, distances: Tensor) -> Tensor:
        """Convert `distances` to the scale that `alpha` is measured on."""
        return distances if self.scale == "distance" else distances.square() / 2

    def margins(self) -> tuple[float, float]:
        """Compute the distances up to which a pair of one class, and from which a pair of two, costs nothing."""
        alpha = self.alpha or 0.0
        near, far = max(0.0, self.scaled_beta - alpha), self.scaled_beta + alpha
        return (near, far) if self.scale == "distance" else (math.sqrt(2 * near), math.sqrt(2 * far))


@runtime_checkable
class StatesConstraint(Protocol):
    """A loss whose expectation bounds a chance constraint."""

    def chance_constraint(self) -> tuple[float, float, Scale]:
        """State beta, alpha, and the scale on which alpha is measured."""


def of_loss(loss: object) -> Constraint | None:
    """Take the constraint from the loss that states one; None where it states none, or one at distance zero."""
    if not isinstance(loss, StatesConstraint):
        return None
    beta, alpha, scale = loss.chance_constraint()
    return Constraint(beta, alpha or None, scale, ORIGINS[scale]) if beta > 0 else None


def at_threshold(beta: float, wanted: float) -> Constraint:
    """Make the constraint of a loss that states none: the threshold of a wanted false-match rate, without a bound."""
    origin = f"chosen on the validation pairs for a false-match rate of {wanted:g}, as this loss has no threshold"
    return Constraint(beta, None, "distance", origin)


def with_given(own: Constraint | None, beta: float | None, alpha: float | None) -> Constraint | None:
    """Put a user's `beta` or `alpha` into the loss's constraint `own`; None if there is still no beta."""
    if beta is not None:
        if not 0 < beta <= FARTHEST:
            raise UserError(
                f"beta = {beta:g} is out of range: distances between normalised embeddings lie between 0 and "
                f"{FARTHEST:g}, so give a threshold in between."
            )
        own = _moved(own, beta)
    return own if own is None or alpha is None else with_alpha(own, alpha)


def with_alpha(constraint: Constraint, alpha: float) -> Constraint:
    """Replace alpha by a user's, which is on distances."""
    if not 0 < alpha <= constraint.beta:
        raise UserError(
            f"alpha = {alpha:g} is out of range: Markov's bound needs 0 < alpha <= beta, and beta is "
            f"{constraint.beta:.4g}."
        )
    return replace(constraint, alpha=alpha, scale="distance")


def _moved(own: Constraint | None, beta: float) -> Constraint:
    """Replace beta; alpha shrinks if it would reach below zero."""
    if own is None:
        return Constraint(beta, None, "distance", "as given")
    moved = replace(own, beta=beta, alpha=None, origin="as given")
    return moved if own.alpha is None else replace(moved, alpha=min(own.alpha, moved.scaled_beta))
