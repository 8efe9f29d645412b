"""Metrix: mixtures of a positive and a negative as references that are partly positive."""

import math
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.functional.distances import pairwise_similarities
from ccp_dml.losses.pairs import Pairs, pair_up

# The square of the length below which a mixture has no direction worth knowing: its ends cancel each other.
_SHORTEST_SQUARE = 1e-6
# A share of exactly 0 or 1, which small values of alpha can draw, would have no logarithm.
_SMALLEST_SHARE = 1e-6


@runtime_checkable
class TakesMixtures(Protocol):
    """A pair loss that knows what references cost that are positive with one share and negative with the rest."""

    normalise: str

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor: ...

    def of_mixtures(self, similarities: Tensor, taking_part: Tensor, share: float) -> Tensor:
        """Compute the loss of anchors with their mixtures, given similarities (B, M) and which count (B, M)."""
        ...


class Metrix(nn.Module):
    """A loss inside the batch plus the same loss against mixtures of its embeddings (Metrix/embed).

        loss(a)  +  weight * mixed loss(a),   mean over anchors a

    A pair loss sums terms over positives and terms over negatives, and makes a loss of the two sums. In the mixed loss,
    a mixture v of a positive and a negative takes part in both sums: with the share lambda of its positive end in the
    first, with 1 - lambda in the second. How the sums become a loss is the affair of the loss: see its `of_mixtures`.

        v = (lambda p + (1 - lambda) n), scaled to length 1,   lambda ~ Beta(alpha, alpha)

    Each anchor meets one mixture per negative n of the batch. A coin, thrown once per step, decides about the other end
    p: a positive of the anchor, drawn anew in each step, or the anchor itself. Lambda is drawn once per step. What the
    paper says of these choices, and what is ours, stands in D33.

    Inputs: `embeddings` (B, D), `labels` (B,). Output: a scalar. All draws follow from `seed` and the number of calls
    in training, which is part of the state: a resumed run goes on exactly.

    When to use: to learn also from places between the training classes, for little more than the loss alone costs.

        loss = Metrix(MultiSimilarityLoss(alpha=2.0, beta=40.0, base=0.5), weight=0.4, alpha=2.0)
        loss(embeddings, labels).backward()

    Args:
        loss: one that takes mixtures: `MultiSimilarityLoss`, `CosineContrastiveLoss`, or one of your own.
        weight: of the mixed loss, the paper's w; 0 leaves the loss as it is.
        alpha: of the Beta distribution; the larger, the nearer is lambda to one half.
        seed: of lambda, coin and positives.

    Venkataramanan, Psomas, Kijak, Amsaleg, Karantzalos, Avrithis: It takes two to tango: Mixup for deep metric
    learning. ICLR 2022.
    """

    def __init__(self, loss: TakesMixtures, weight: float = 0.4, alpha: float = 2.0, *, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(loss, TakesMixtures):
            raise ValueError(
                f"Metrix needs a loss that takes mixtures (of_mixtures), which {type(loss).__name__} does not"
            )
        if not (0 <= weight < math.inf and 0 < alpha < math.inf):
            raise ValueError(f"Metrix needs weight >= 0 and alpha > 0, got {weight} and {alpha}")
        self.loss, self.weight, self.alpha, self.seed = loss, weight, alpha, seed
        self.calls = 0  # a plain number, so that no step waits for the device

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the scalar loss of a batch (B, D) with labels (B,)."""
        loss = self.loss(embeddings, labels)
        self.calls += self.training  # a batch that is only measured changes nothing about training
        if not self.weight or not len(labels):
            return loss
        draw = np.random.default_rng(derive_seed(self.seed, "mixing", self.calls))
        share = min(max(draw.beta(self.alpha, self.alpha), _SMALLEST_SHARE), 1 - _SMALLEST_SHARE)
        pairs = pair_up(embeddings, labels, normalise=self.loss.normalise)
        if draw.random() < 0.5:
            ends, taking_part = torch.arange(len(labels), device=embeddings.device), pairs.negative
        else:
            ends = drawn_positives(pairs, draw)
            taking_part = pairs.negative & pairs.positive.any(dim=1, keepdim=True)
        similarities = similarities_to_mixtures(pairs.anchors, ends, share)
        return loss + self.weight * self.loss.of_mixtures(similarities, taking_part, share)

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]

    def extra_repr(self) -> str:
        return f"{self.weight=}, {self.alpha=}, {self.seed=}".replace("self.", "")


def drawn_positives(pairs: Pairs, draw: np.random.Generator) -> Tensor:
    """Draw a positive (B,) of each anchor, any of them with equal chance; an anchor without any gets some index."""
    # By the highest of random scores, on which no device has to be waited for.
    scores = torch.from_numpy(draw.random(pairs.positive.shape, dtype=np.float32))
    return scores.to(pairs.anchors.device, non_blocking=True).masked_fill(~pairs.positive, -1.0).argmax(dim=1)


def similarities_to_mixtures(anchors: Tensor, ends: Tensor, share: float) -> Tensor:
    """Compute the similarities (B, B) of each anchor to its mixtures of length 1, one for each row n of `anchors`.

    A mixture is `share` of the anchor's own end, the row `ends` (B,) of `anchors` (B, D), and 1 - `share` of row n.
    Similarity and length follow from those of its two ends, so that no mixtures (B, B, D) are ever made.
    """
    similarities = pairwise_similarities(anchors, anchors)  # (B, B)
    squares, rest = similarities.diagonal(), 1.0 - share
    to_ends = similarities.gather(1, ends.unsqueeze(1))  # (B, 1): of an anchor to its end
    of_ends = similarities[ends]  # (B, B): of an anchor's end to row n
    products = share * to_ends + rest * similarities
    lengths_squared = share**2 * squares[ends].unsqueeze(1) + rest**2 * squares + 2 * share * rest * of_ends
    return products * lengths_squared.clamp(min=_SHORTEST_SQUARE).rsqrt()
