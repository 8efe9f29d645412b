"""What a step minimises: a loss on the batch alone, or against class proxies and inside the batch."""

from typing import Literal

import torch
from torch import Tensor, nn

from ccp_dml.functional.distances import at_least_float32
from ccp_dml.functional.labels import refuse_labels_out_of_range
from ccp_dml.proxies import ClassProxies

PairWeight = float | Literal["balanced"]

BALANCE = 3.0
"""Of 1, 3 and 6 the smallest with which CCP was above each of the four losses; recipes of single losses have smaller
ones: docs/lab_notes_pace.md."""
ON_THE_SPHERE = 1 - 1e-5  # the length from which on an embedding counts as normalised, but for rounding
LARGEST_RATIO = 100.0  # hardly an active pair on one side must neither silence nor drown the other


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

    Labels are the numbers of the proxies' classes. Others are refused: at once where labels are on a processor, and
    without waiting for a GPU where they are there; see `refuse_labels_out_of_range`.

    Args:
        loss: any loss with the reference-set signature; `holders` in it where several processes share the proxies.
        proxies: trained together with the network.
        pair_weight: 0.1 as in the authors' code; 0 is the paper's text; "balanced" turns it round: the loss inside the
            batch counts in full, and the one against proxies gets the `balanced_share`.
        balance: how many times as hard as the proxies the batch pulls then.
    """

    def __init__(
        self, loss: nn.Module, proxies: ClassProxies, pair_weight: PairWeight = 0.1, balance: float = BALANCE
    ) -> None:
        super().__init__()
        if isinstance(pair_weight, str) and pair_weight != "balanced":
            raise ValueError(f"pair_weight must be a number or 'balanced', got {pair_weight!r}")
        if not (pair_weight == "balanced" or pair_weight >= 0) or not balance > 0:
            raise ValueError(f"pair_weight must not be negative, and balance above 0, got {pair_weight} and {balance}")
        self.loss, self.proxies, self.pair_weight, self.balance = loss, proxies, pair_weight, balance

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if not self.proxies.placed:
            within_batch: Tensor = self.loss(embeddings, labels)
            refuse_labels_out_of_range(labels, self.proxies.classes)
            return within_batch
        embeddings = at_least_float32(embeddings)  # gradients of half precision would be too coarse to be compared
        holders = self.proxies.holders
        shared = (holders,) if holders.count > 1 else ()  # those of one process are references for any loss
        loss: Tensor = self.loss(embeddings, labels, *self.proxies(), *shared)
        refuse_labels_out_of_range(labels, self.proxies.classes)  # after the loss, which knows what labels are
        if not self.pair_weight:
            return loss
        within_batch = self.loss(embeddings, labels)
        if self.pair_weight == "balanced":
            return within_batch + balanced_share(loss, within_batch, embeddings, self.balance) * loss
        return loss + self.pair_weight * within_batch


def balanced_share(
    against_proxies: Tensor, within_batch: Tensor, embeddings: Tensor, balance: float = BALANCE
) -> Tensor:
    """Weigh the loss against proxies so that the batch pulls `balance` times as hard at the embeddings (B, D).

    Losses differ in how they grow with the number of references (D18: a sum, a mean of the active pairs, a logarithm),
    so that no fixed weight suits all of them. What both terms do to the embeddings is comparable: the norms of their
    gradients. The batch keeps its full weight, so that a training that has little left to learn takes small steps, as
    without proxies; these have no more than the batch, as they are soon behind the network that they were chosen with.
    """
    of_proxies, of_batch = (_pull_of(term, embeddings) for term in (against_proxies, within_batch))
    share = (of_batch / (balance * of_proxies)).clamp(1 / LARGEST_RATIO, LARGEST_RATIO)
    return torch.where(of_proxies > 0, share, torch.ones_like(share))


def _pull_of(term: Tensor, embeddings: Tensor) -> Tensor:
    """Measure how hard a loss pulls at embeddings (B, D): the norm of its gradient.

    What a network has clipped or normalised to length 1 cannot follow a pull outwards, and whether the loss still has
    one there, on the kink of its own clip, is up to the last bit. So such a pull does not count.
    """
    if not (embeddings.requires_grad and term.requires_grad):  # nothing learns, or there are no pairs
        return embeddings.new_zeros(())
    (pull,) = torch.autograd.grad(term, embeddings, retain_graph=True, materialize_grads=True)
    at = embeddings.detach()
    length = torch.linalg.vector_norm(at, dim=1, keepdim=True)
    outwards = at / length.clamp(min=ON_THE_SPHERE)
    along = torch.where(length >= ON_THE_SPHERE, (pull * outwards).sum(1, keepdim=True), 0)
    return torch.linalg.vector_norm(pull - along * outwards)
