"""Hierarchical proxies over ProxyAnchor (HPL-PA): classes that are alike share a coarse proxy."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.distances import pairwise_squared_distances
from ccp_dml.losses.proxy_losses import ProxyAnchorLoss


class HierarchicalProxyAnchorLoss(nn.Module):
    """HPL-PA: ProxyAnchor on classes, plus ProxyAnchor on clusters of classes that change with the proxies.

        ProxyAnchor(samples, class proxies)  +  coarse_weight * ProxyAnchor(samples, coarse proxies)

    Every `cluster_every` epochs, k-means groups the class proxies. The centre of each group becomes a coarse proxy,
    which stays where it is until the next clustering, and the group of its class becomes a sample's coarse label.
    Before the first clustering there is no coarse level: proxies just drawn have no hierarchy to be found.

    Inputs: `embeddings` (B, D), `labels` (B,) in 0..classes-1. Output: a scalar. The number of calls in training
    decides when to cluster, and is part of the state, like the groups and their centres: a resumed run goes on exactly.

    When to use: many classes that fall into kinds, such as products.

        loss = HierarchicalProxyAnchorLoss(classes=100, dim=128, steps_per_epoch=180)
        loss(embeddings, labels).backward()

    Args:
        margin, alpha: of ProxyAnchor, on both levels.
        coarse_weight: weight of the coarse level.
        clusters: coarse proxies, at most as many as classes; None: the square root of the number of classes.
        cluster_every: epochs between clusterings.
        classes, dim: size of the class proxies.
        steps_per_epoch: calls that make up an epoch.
        seed: of the class proxies and of k-means.

    Yang, Bastan, Zhu, Gray, Samaras: Hierarchical proxy-based loss for deep metric learning. WACV 2022.
    """

    cluster_of_class: Tensor

    def __init__(
        self,
        margin: float = 0.1,
        alpha: float = 32.0,
        coarse_weight: float = 0.1,
        clusters: int | None = None,
        cluster_every: float = 1.0,
        *,
        classes: int,
        dim: int,
        steps_per_epoch: int,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not (coarse_weight >= 0 and cluster_every > 0) or (clusters is not None and clusters < 2):
            raise ValueError(
                "HPL-PA needs coarse_weight >= 0, cluster_every > 0 and at least two clusters, "
                f"got {coarse_weight}, {cluster_every} and {clusters}"
            )
        self.coarse_weight, self.seed = coarse_weight, seed
        self.steps_between_clusterings = max(1, round(cluster_every * steps_per_epoch))
        self.fine = ProxyAnchorLoss(margin, alpha, classes=classes, dim=dim, seed=seed)
        self.clusters = min(clusters or max(2, round(math.sqrt(classes))), classes)
        self.coarse = ProxyAnchorLoss(margin, alpha, classes=self.clusters, dim=dim, seed=seed)
        self.coarse.requires_grad_(False)  # its proxies are centres, moved by clustering alone
        self.register_buffer("cluster_of_class", torch.zeros(classes, dtype=torch.int64))
        self.calls = 0

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if self.training:  # a batch that is only measured changes nothing about training
            if self.calls and self.calls % self.steps_between_clusterings == 0:
                self.cluster(self.calls // self.steps_between_clusterings)
            self.calls += 1
        loss: Tensor = self.fine(embeddings, labels)
        if self.calls > self.steps_between_clusterings:
            positions = labels.to(embeddings.device, torch.int64)  # bytes would be taken for a mask
            loss = loss + self.coarse_weight * self.coarse(embeddings, self.cluster_of_class[positions])
        return loss

    @torch.no_grad()
    def cluster(self, number: int) -> None:
        """Group the class proxies anew; `number` counts the clusterings, each of which draws from its own stream."""
        # On the CPU in double precision, so that devices agree. Directions are what ProxyAnchor compares.
        proxies = F.normalize(self.fine.proxies.detach().cpu().double(), dim=1)
        with torch.device("cpu"):  # whatever device a program has made the default
            centres, assignment = k_means(proxies, self.clusters, generator(self.seed, "k-means", number))
        self.coarse.proxies.copy_(centres)
        self.cluster_of_class.copy_(assignment)

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def k_means(points: Tensor, k: int, draw: torch.Generator, max_rounds: int = 100) -> tuple[Tensor, Tensor]:
    """Find centres (k, D) and assignment (N,) of `points` (N, D) by Lloyd's algorithm from k-means++ starts.

    A cluster that loses all its points takes over the point that is farthest from its centre.
    """
    centres = points[_spread_starts(points, k, draw)]
    assignment = torch.full((len(points),), -1)
    for _ in range(max_rounds):
        squared = pairwise_squared_distances(points, centres)  # (N, k)
        to_own, nearest = squared.min(dim=1)
        for empty in (torch.bincount(nearest, minlength=k) == 0).nonzero().flatten():
            farthest = to_own.argmax()
            nearest[farthest], to_own[farthest] = empty, -1.0  # taken: not to be taken again
        if torch.equal(nearest, assignment):
            break
        assignment = nearest
        sums = torch.zeros_like(centres).index_add_(0, assignment, points)
        centres = sums / torch.bincount(assignment, minlength=k).clamp(min=1).unsqueeze(1)
    return centres, assignment


def _spread_starts(points: Tensor, k: int, draw: torch.Generator) -> Tensor:
    """Draw indices (k,) of the first centres: each next one is drawn by its squared distance to those before it."""
    starts = [int(torch.randint(len(points), (), generator=draw))]
    squared = pairwise_squared_distances(points, points[starts]).flatten()
    while len(starts) < k:
        weights = squared if bool(squared.any()) else torch.ones_like(squared)  # all points coincide with a start
        starts.append(int(torch.multinomial(weights, 1, generator=draw)))
        squared = torch.minimum(squared, pairwise_squared_distances(points, points[starts[-1:]]).flatten())
    return torch.tensor(starts)
