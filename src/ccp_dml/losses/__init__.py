"""Losses. Pair losses are called as `loss(embeddings, labels, ref_embeddings, ref_labels)`; see docs/extending.md."""

from torch import nn

from ccp_dml.losses.contrastive import ContrastiveLoss, CosineContrastiveLoss
from ccp_dml.losses.hierarchical import HierarchicalProxyAnchorLoss
from ccp_dml.losses.memory import CrossBatchMemory
from ccp_dml.losses.metrix import Metrix
from ccp_dml.losses.multi_similarity import MultiSimilarityLoss
from ccp_dml.losses.pml import PmlLoss, wrap
from ccp_dml.losses.proxy_losses import ProxyAnchorLoss, ProxyNcaPlusPlusLoss, SoftTripleLoss
from ccp_dml.losses.triplet import TripletLoss

LOSSES: dict[str, type[nn.Module]] = {
    "c1": CosineContrastiveLoss,
    "c2": ContrastiveLoss,
    "ms": MultiSimilarityLoss,
    "triplet": TripletLoss,
}
"""Pair losses by name: they take references, and so go together with proxies (CCP) and a memory (XBM)."""

PROXY_LOSSES: dict[str, type[nn.Module]] = {
    "proxy-anchor": ProxyAnchorLoss,
    "proxy-nca++": ProxyNcaPlusPlusLoss,
    "soft-triple": SoftTripleLoss,
    "hpl-pa": HierarchicalProxyAnchorLoss,
}
"""Losses with proxies of their own by name: they are made for so many `classes` of so many dimensions `dim`."""

__all__ = [
    "LOSSES",
    "PROXY_LOSSES",
    "ContrastiveLoss",
    "CosineContrastiveLoss",
    "CrossBatchMemory",
    "HierarchicalProxyAnchorLoss",
    "Metrix",
    "MultiSimilarityLoss",
    "PmlLoss",
    "ProxyAnchorLoss",
    "ProxyNcaPlusPlusLoss",
    "SoftTripleLoss",
    "TripletLoss",
    "wrap",
]
