"""Contrastive loss, on distances (C2) and on cosine similarities (C1)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.losses.pairs import check_normalise, pair_up


class ContrastiveLoss(nn.Module):
    """C2: positives closer than one margin, negatives farther than another.

          mean of the non-zero (d - positive_margin)_+ over positive pairs
        + mean of the non-zero (negative_margin - d)_+ over negative pairs

    With `beta` half-way between the margins and `alpha` half their difference, this is the expectation that bounds the
    violation of the paper's chance constraint: positive_margin = beta - alpha, negative_margin = beta + alpha.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.

    When to use: the default of this package. Only pairs that violate a margin count, so it stays sharp to the end.

        loss = ContrastiveLoss(positive_margin=0.0, negative_margin=0.5)
        loss(embeddings, labels).backward()

    Hadsell, Chopra, LeCun: Dimensionality reduction by learning an invariant mapping. CVPR 2006.
    """

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 0.5, *, normalise: str = "clip") -> None:
        super().__init__()
        if not 0 <= positive_margin <= negative_margin:
            raise ValueError(
                "contrastive loss needs 0 <= positive_margin <= negative_margin, "
                f"got {positive_margin} and {negative_margin}"
            )
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin
        self.normalise = check_normalise(normalise)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        holders: Processes = ALONE,
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise, holders)
        pairs = pairs.nearer_than(self.negative_margin)
        distances, (positive, negative) = pairs.distances(), pairs.masks()
        too_far = torch.relu(distances - self.positive_margin) * positive
        too_close = torch.relu(self.negative_margin - distances) * negative
        return pairs.mean_of_non_zero(too_far) + pairs.mean_of_non_zero(too_close)

    def chance_constraint(self) -> tuple[float, float, Literal["distance"]]:
        """State the constraint that this loss bounds: beta, alpha, and the scale on which alpha is measured."""
        alpha = (self.negative_margin - self.positive_margin) / 2
        return (self.positive_margin + self.negative_margin) / 2, alpha, "distance"

    def extra_repr(self) -> str:
        return f"{self.positive_margin=}, {self.negative_margin=}, {self.normalise=}".replace("self.", "")


class CosineContrastiveLoss(nn.Module):
    """C1: positives at similarity one, negatives below a margin (D19).

        1/B * ( sum of (1 - s)_+ over positives  +  sum of (s - margin)_+ over negatives )

    `s` is the dot product of the normalised vectors: their cosine, where they are as long as 1.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.

    When to use: with a memory of past batches (XBM), for which it was proposed. A sum, so it grows with the references.

        loss = CosineContrastiveLoss(margin=0.5)
        loss(embeddings, labels, proxies.flatten(0, 1), proxy_labels).backward()

    Wang, Zhang, Huang, Scott: Cross-batch memory for embedding learning. CVPR 2020.
    """

    def __init__(self, margin: float = 0.5, *, normalise: str = "clip") -> None:
        super().__init__()
        if not -1 <= margin <= 1:
            raise ValueError(f"the margin of the cosine contrastive loss is a similarity in [-1, 1], got {margin}")
        self.margin = margin
        self.normalise = check_normalise(normalise)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        holders: Processes = ALONE,
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise, holders)
        pairs = pairs.more_similar_than(self.margin)
        similarities, (positive, negative) = pairs.similarities(), pairs.masks()
        too_unlike = torch.relu(1.0 - similarities) * positive
        too_alike = torch.relu(similarities - self.margin) * negative
        return pairs.holders.total(too_unlike.sum() + too_alike.sum()) / max(len(embeddings), 1)

    def of_mixtures(self, similarities: Tensor, taking_part: Tensor, share: float) -> Tensor:
        """Compute the loss against references (B, M) that are positives with this `share`, else negatives (Metrix).

        1/B * sum of   share (1 - s)_+  +  (1 - share) (s - margin)_+
        """
        too_unlike, too_alike = torch.relu(1.0 - similarities), torch.relu(similarities - self.margin)
        return ((share * too_unlike + (1 - share) * too_alike) * taking_part).sum() / max(len(similarities), 1)

    def chance_constraint(self) -> tuple[float, float, Literal["half squared distance"]]:
        """State the constraint that this loss bounds: beta, alpha, and the scale on which alpha is measured.

        `(1 - s)_+` and `(s - margin)_+` are the terms of a constraint on 1 - s with beta' = alpha = (1 - margin) / 2.
        For vectors of unit length 1 - s is half the squared distance, on which the constraint is therefore put. Vectors
        inside the unit ball, which clipping allows, have d^2/2 < 1 - s; the bound holds for their distances all the
        same, as it is evaluated on d^2/2 itself.
        """
        half = (1 - self.margin) / 2
        return math.sqrt(2 * half), half, "half squared distance"

    def extra_repr(self) -> str:
        return f"{self.margin=}, {self.normalise=}".replace("self.", "")
