"""What a step minimises: a loss on the batch alone, or against class proxies and inside the batch."""

from typing import Literal

import torch
from torch import Tensor, nn

from ccp_dml.functional.distances import at_least_float32
from ccp_dml.proxies import ClassProxies

PairWeight = float | Literal["balanced"]

BALANCE = 3.0
"""Of 1, 3 and 6 the smallest with which CCP was above each of the four losses: docs/results_characters.md."""
LARGEST_WEIGHT = 100.0  # a batch with hardly an active pair must not drown the proxies


class BatchObjective(nn.Module):
    """The plain loss: the batch is its own reference set."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(embeddings, labels)
        return loss


class ProxyObjective(nn.Module):
    """The loss against class proxies, plus `pair_weight` times the same loss inside the batch (D4).

    As long as the proxies have not been placed, the loss inside the batch is all there is.

    Args:
        loss: any loss with the reference-set signature; `holders` in it where several processes share the proxies.
        proxies: trained together with the network.
        pair_weight: 0.1 as in the authors' code; 0 is the paper's text; "balanced" finds it anew in each step, see
            `balanced_weight`.
    """

    def __init__(self, loss: nn.Module, proxies: ClassProxies, pair_weight: PairWeight = 0.1) -> None:
        super().__init__()
        self.loss, self.proxies, self.pair_weight = loss, proxies, pair_weight

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if not self.proxies.placed:
            within_batch: Tensor = self.loss(embeddings, labels)
            return within_batch
        embeddings = at_least_float32(embeddings)  # gradients of half precision would be too coarse to be compared
        holders = self.proxies.holders
        shared = (holders,) if holders.count > 1 else ()  # those of one process are references for any loss
        loss: Tensor = self.loss(embeddings, labels, *self.proxies(), *shared)
        if self.pair_weight:
            within_batch = self.loss(embeddings, labels)
            weight: float | Tensor
            if self.pair_weight == "balanced":
                weight = balanced_weight(loss, within_batch, embeddings)
            else:
                weight = self.pair_weight
            loss = loss + weight * within_batch
        return loss


def balanced_weight(against_proxies: Tensor, within_batch: Tensor, embeddings: Tensor) -> Tensor:
    """Weigh the loss inside the batch so that it pulls `BALANCE` times as hard at the embeddings (B, D) as proxies do.

    Losses differ in how they grow with the number of references (D18: a sum, a mean of the active pairs, a logarithm),
    so that no fixed weight suits all of them. What both terms do to the embeddings is comparable: the norms of their
    gradients. The batch has the larger part, because proxies are soon behind the network that they were chosen with.
    """
    if not embeddings.requires_grad:  # nothing learns, so there is nothing to balance
        return embeddings.new_ones(())
    of_proxies, of_batch = (
        torch.linalg.vector_norm(torch.autograd.grad(term, embeddings, retain_graph=True)[0]).detach()
        for term in (against_proxies, within_batch)
    )
    weight = (BALANCE * of_proxies / of_batch).clamp(max=LARGEST_WEIGHT)
    return torch.where(of_batch > 0, weight, torch.zeros_like(weight))
