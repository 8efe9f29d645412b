"""Triplet margin loss over all triplets, without ever listing them."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.losses.pairs import Pairs, check_normalise, pair_up

_BLOCK_ELEMENTS = 1 << 22  # pairs counted at a time: bounds the temporaries of very large reference sets
_FEW_POSITIVES = 64  # up to so many of an anchor, comparing all negatives with each is faster than sorting them


class TripletLoss(nn.Module):
    """Triplet: every positive closer to the anchor than every negative, by a margin.

        mean of non-zero (d_ap - d_an + margin)_+ over all anchors a, their positives p and their negatives n

    The sum and its gradient only need to know in how many violated triplets each pair takes part: O(B R) memory for
    O(B R^2) triplets. Negatives farther than an anchor's farthest positive and the margin are in none.

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
        if not margin >= 0:  # NaN is not, either
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
        holders: Processes = ALONE,
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise, holders)
        holders = pairs.holders  # nobody but this process where the batch is its own reference set
        if pairs.are_many or holders.count > 1:  # holders have to ask each other alike, however many each has
            own = pairs.of_shared_classes()
            pairs = own if self.references_as_anchors else pairs.nearer_than(_reach(own, self.margin))
        distances, positive, negative = pairs.distances(), pairs.positive, pairs.negative
        if self.references_as_anchors:
            distances, positive, negative = distances.T, positive.T, negative.T
        # Sum of (d_ap - d_an + margin) over violated triplets, where each distance stands as often as `counts` says.
        is_divided = holders.count > 1 and not self.references_as_anchors  # whether others have an anchor's negatives
        count = partial(_violated_across, holders=holders) if is_divided else _violated_triplets
        counts = count(distances.detach(), positive, negative, self.margin)  # (anchors, others)
        triplets = holders.total((counts * positive).sum(dtype=torch.float64))
        signed = torch.where(positive, counts, -counts)
        total = holders.total((signed * distances).sum(dtype=torch.float64)) + self.margin * triplets
        return (total / triplets.clamp(min=1)).to(distances.dtype)

    def extra_repr(self) -> str:
        return f"{self.margin=}, {self.references_as_anchors=}, {self.normalise=}".replace("self.", "")


@torch.no_grad()
def _reach(pairs: Pairs, margin: float) -> Tensor:
    """Compute how near a negative must be to an anchor to be in a violated triplet (B, 1); -inf without positives."""
    of_positives = pairs.distances().masked_fill(~pairs.positive, -torch.inf)
    return pairs.holders.largest(F.pad(of_positives, (0, 1), value=-torch.inf).amax(1, keepdim=True)) + margin


@torch.no_grad()
def _violated_triplets(distances: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Count the triplets with `d_an < d_ap + margin` that each pair takes part in: (A, R), of `distances`' type."""
    # How many positives an anchor has must be known beforehand; other devices would have to be waited for.
    most = int(positive.sum(1).amax()) if distances.device.type == "cpu" and distances.numel() else None
    count = _count_by_sorting if most is None or most > _FEW_POSITIVES else partial(_count_by_comparing, most=most)
    counts = torch.zeros_like(distances)
    rows = max(1, _BLOCK_ELEMENTS // max(distances.shape[1], 1))
    for start in range(0, len(distances), rows):
        block = slice(start, start + rows)
        reach = (distances[block] + margin).masked_fill(~positive[block], -torch.inf)  # below every distance
        of_negatives = distances[block].masked_fill(~negative[block], torch.inf)
        counts[block] = count(reach, of_negatives)
    return counts


@torch.no_grad()
def _violated_across(
    distances: Tensor, positive: Tensor, negative: Tensor, margin: float, holders: Processes
) -> Tensor:
    """Count what `_violated_triplets` counts, where an anchor has positives and negatives in several processes.

    The distances of all positives travel, since they are few; each process compares them with its own negatives.
    """
    most = int(holders.largest(F.pad(positive.sum(1), (0, 1), value=1).amax()))  # waits for device and processes
    reach = (distances + margin).masked_fill(~positive, -torch.inf)
    reaches, places = F.pad(reach, (0, most), value=-torch.inf).topk(most, dim=1)  # (A, most)
    of_all = holders.gather(reaches.T).T.contiguous()  # (A, most of each process), in rank order
    of_negatives = distances.masked_fill(~negative, torch.inf)
    in_reach = holders.total(torch.searchsorted(of_negatives.sort(dim=1).values, of_all))
    out_of_reach = torch.searchsorted(of_all.sort(dim=1).values, of_negatives, right=True)
    counts = F.pad(torch.where(negative, of_all.shape[1] - out_of_reach, 0), (0, most))
    counts.scatter_add_(1, places, in_reach.unflatten(1, (-1, most))[:, holders.rank])  # nothing within -inf
    return counts[:, : distances.shape[1]].to(distances.dtype)


def _count_by_sorting(reach: Tensor, of_negatives: Tensor) -> Tensor:
    """Count, for each positive, the negatives within `reach`; for each negative, the positives that reach it (A, R)."""
    negatives_in_reach = torch.searchsorted(of_negatives.sort(dim=1).values, reach)
    positives_out_of_reach = torch.searchsorted(reach.sort(dim=1).values, of_negatives, right=True)
    return torch.where(reach > -torch.inf, negatives_in_reach, reach.shape[1] - positives_out_of_reach)


def _count_by_comparing(reach: Tensor, of_negatives: Tensor, most: int) -> Tensor:
    """Count the same where no anchor has more than `most` positives: a pass over the negatives for each of them."""
    counts = torch.zeros_like(of_negatives)
    reaches, places = reach.topk(most, dim=1)  # (A, most)
    negatives_in_reach = torch.empty_like(reaches)
    for number in range(most):
        reached = of_negatives < reaches[:, number : number + 1]
        counts += reached
        negatives_in_reach[:, number] = reached.sum(1)
    return counts.scatter_add_(1, places, negatives_in_reach)  # an anchor with fewer positives adds zeros
