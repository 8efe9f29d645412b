"""What a step minimises: a pair loss against its reference sets."""

from torch import Tensor, nn

from ccp_dml.proxies import ClassProxies


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
        loss: any loss with the reference-set signature.
        proxies: trained together with the network.
        pair_weight: 0.1 as in the authors' code; 0 is the paper's text.
    """

    def __init__(self, loss: nn.Module, proxies: ClassProxies, pair_weight: float = 0.1) -> None:
        super().__init__()
        self.loss, self.proxies, self.pair_weight = loss, proxies, pair_weight

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if not self.proxies.placed:
            within_batch: Tensor = self.loss(embeddings, labels)
            return within_batch
        loss: Tensor = self.loss(embeddings, labels, *self.proxies())
        if self.pair_weight:
            loss = loss + self.pair_weight * self.loss(embeddings, labels)
        return loss
