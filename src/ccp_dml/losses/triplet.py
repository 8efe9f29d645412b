"""Triplet margin loss over all triplets, without ever listing them."""

import torch
from torch import Tensor, nn

from ccp_dml.losses.pairs import check_normalise, pair_up

_BLOCK_ELEMENTS = 1 << 22  # pairs sorted at a time: bounds the temporaries of very large reference sets


class TripletLoss(nn.Module):
    """Triplet: every positive closer to the anchor than every negative, by a margin.

        mean of non-zero (d_ap - d_an + margin)_+ over all anchors a, their positives p and their negatives n

    Sorting the distances of each anchor tells in how many violated triplets each pair takes part, which is all that the
    sum and its gradient need: O(B R log R) time and O(B R) memory for O(B R^2) triplets.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.
    With `references_as_anchors`, each reference (a proxy, say) is an anchor, and the samples are its positives and
    negatives (D17).

    When to use: where the order of neighbours matters more than absolute distances.

        loss = TripletLoss(margin=0.05)
        loss(embeddings, labels).backward()

    Weinberger, Saul: Distance metric learning for large margin nearest neighbor classification. JMLR 2009.
    """

    def __init__(self, margin: float = 0.05, *, references_as_anchors: bool = False, normalise: str = "clip") -> None:
        super().__init__()
        if margin < 0:
            raise ValueError(f"the margin of the triplet loss must not be negative, got {margin}")
        self.margin = margin
        self.references_as_anchors = references_as_anchors
        self.normalise = check_normalise(normalise)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise)
        distances, positive, negative = pairs.distances(), pairs.positive, pairs.negative
        if self.references_as_anchors:
            distances, positive, negative = distances.T, positive.T, negative.T
        # Sum of (d_ap - d_an + margin) over violated triplets, where each distance stands as often as `counts` says.
        counts = _violated_triplets(distances.detach(), positive, negative, self.margin)  # (anchors, others)
        triplets = (counts * positive).sum(dtype=torch.float64)
        signed = torch.where(positive, counts, -counts)
        total = (signed * distances).sum(dtype=torch.float64) + self.margin * triplets
        return (total / triplets.clamp(min=1)).to(distances.dtype)

    def extra_repr(self) -> str:
        return f"{self.margin=}, {self.references_as_anchors=}, {self.normalise=}".replace("self.", "")


@torch.no_grad()
def _violated_triplets(distances: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """In how many triplets with `d_an < d_ap + margin` each pair takes part: (A, R), of `distances`' type."""
    counts = torch.zeros_like(distances)
    rows = max(1, _BLOCK_ELEMENTS // max(distances.shape[1], 1))
    for start in range(0, len(distances), rows):
        block = slice(start, start + rows)
        reach = (distances[block] + margin).masked_fill(~positive[block], -torch.inf)  # below every distance
        of_negatives = distances[block].masked_fill(~negative[block], torch.inf)
        negatives_in_reach = torch.searchsorted(of_negatives.sort(dim=1).values, reach)
        positives_out_of_reach = torch.searchsorted(reach.sort(dim=1).values, of_negatives, right=True)
        counts[block] = torch.where(positive[block], negatives_in_reach, distances.shape[1] - positives_out_of_reach)
    return counts
