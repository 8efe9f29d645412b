"""Pair losses. Each is called as `loss(embeddings, labels, ref_embeddings, ref_labels)`; see docs/extending.md."""

from torch import nn

from ccp_dml.losses.contrastive import ContrastiveLoss, CosineContrastiveLoss
from ccp_dml.losses.multi_similarity import MultiSimilarityLoss
from ccp_dml.losses.triplet import TripletLoss

LOSSES: dict[str, type[nn.Module]] = {
    "c1": CosineContrastiveLoss,
    "c2": ContrastiveLoss,
    "ms": MultiSimilarityLoss,
    "triplet": TripletLoss,
}

__all__ = ["LOSSES", "ContrastiveLoss", "CosineContrastiveLoss", "MultiSimilarityLoss", "TripletLoss"]
