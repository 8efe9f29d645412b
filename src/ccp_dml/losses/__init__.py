"""Losses. Pair losses are called as `loss(embeddings, labels, ref_embeddings, ref_labels)`; see docs/extending.md."""

from torch import nn

from ccp_dml.losses.contrastive import ContrastiveLoss, CosineContrastiveLoss
from ccp_dml.losses.hierarchical import HierarchicalProxyAnchorLoss
from ccp_dml.losses.memory import CrossBatchMemory
from ccp_dml.losses.multi_similarity import MultiSimilarityLoss
from ccp_dml.losses.pml import PmlLoss
from ccp_dml.losses.proxy_losses import ProxyAnchorLoss, ProxyNcaPlusPlusLoss, SoftTripleLoss
from ccp_dml.losses.triplet import TripletLoss

LOSSES: dict[str, type[nn.Module]] = {
    "c1": CosineContrastiveLoss,
    "c2": ContrastiveLoss,
    "ms": MultiSimilarityLoss,
    "triplet": TripletLoss,
    "proxy-anchor": ProxyAnchorLoss,
    "proxy-nca++": ProxyNcaPlusPlusLoss,
    "soft-triple": SoftTripleLoss,
    "hpl-pa": HierarchicalProxyAnchorLoss,
}
"""What `loss.name` can be, besides `pml:NAME`. A loss that asks for `classes` and `dim` owns its proxies."""

__all__ = [
    "LOSSES",
    "ContrastiveLoss",
    "CosineContrastiveLoss",
    "CrossBatchMemory",
    "HierarchicalProxyAnchorLoss",
    "MultiSimilarityLoss",
    "PmlLoss",
    "ProxyAnchorLoss",
    "ProxyNcaPlusPlusLoss",
    "SoftTripleLoss",
    "TripletLoss",
]
