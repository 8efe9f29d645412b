"""Cross-batch memory: past embeddings as a third source of references, beside the batch and proxies."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.losses.pml import PmlLoss


class CrossBatchMemory(nn.Module):
    """A loss inside the batch plus the same loss against a queue of past embeddings (XBM).

    Until `start_step` only the batch counts: embeddings drift too fast at first. From then on the queue takes in
    every batch, the current one included, and forgets the oldest (D23). Embeddings in the queue carry no gradient. The
    queue is part of the module's state, so that a resumed run goes on exactly. In inference mode (`memory.eval()`) a
    loss is measured only: what is being validated must not become something to learn from.

    A sample meets its own copy in the queue, as a positive at distance zero. To C2 that is no pair at all; C1 is drawn
    by it to give its vectors unit length.

    Args:
        loss: any loss with the reference-set signature.
        size: embeddings in the queue.
        dim: their dimension.
        start_step: calls in training before the queue is used.

    Wang et al., *Cross-Batch Memory for Embedding Learning*, CVPR 2020.
    """

    embeddings: Tensor
    labels: Tensor

    def __init__(self, loss: nn.Module, size: int, dim: int, start_step: int = 1000) -> None:
        super().__init__()
        if size < 1 or dim < 1 or start_step < 0:
            raise ValueError(
                "a cross-batch memory needs room for at least one embedding of one dimension, and start_step >= 0, "
                f"got size {size}, dim {dim} and start_step {start_step}"
            )
        refuse_without_references(loss, dim)
        self.loss, self.start_step = loss, start_step
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        self.calls = 0
        self.enqueued = 0  # ever; plain numbers, so that no step waits for the device

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the scalar loss of a batch (B, D) with labels (B,)."""
        loss: Tensor = self.loss(embeddings, labels)
        if embeddings.device != self.embeddings.device:
            raise ValueError(
                f"embeddings are on {embeddings.device}, this memory on {self.embeddings.device}: move it once, before "
                "training, by memory.to(device)"
            )
        if embeddings.shape[1] != self.embeddings.shape[1]:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} dimensions, but this memory is made for "
                f"{self.embeddings.shape[1]}: set dim"
            )
        self.calls += self.training
        if self.calls <= self.start_step:
            return loss
        if self.training:
            self._enqueue(embeddings.detach(), labels)
        filled = min(self.enqueued, len(self.labels))
        # A copy: the queue may move on before somebody's own loop gets to the backward pass of this step.
        past: Tensor = self.loss(embeddings, labels, self.embeddings[:filled].clone(), self.labels[:filled])
        return loss + past

    def _enqueue(self, embeddings: Tensor, labels: Tensor) -> None:
        size = len(self.labels)
        embeddings, labels = embeddings[-size:], labels[-size:].to(self.labels)
        slots = torch.arange(self.enqueued, self.enqueued + len(labels), device=labels.device) % size
        self.embeddings[slots] = embeddings.to(self.embeddings.dtype)
        self.labels[slots] = labels
        self.enqueued += len(labels)

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls, "enqueued": self.enqueued}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls, self.enqueued = state["calls"], state["enqueued"]


def refuse_without_references(loss: nn.Module, dim: int) -> None:
    """Raise if a loss takes no references, which would otherwise show when the queue is first used."""
    parameters = list(inspect.signature(loss.forward).parameters.values())
    takes_four = len(parameters) >= 4 or any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if not takes_four or any(each.name == "indices_tuple" for each in parameters):
        raise ValueError(
            f"a memory needs a loss that is called as loss(embeddings, labels, ref_embeddings, ref_labels), which "
            f"{type(loss).__name__} is not; ccp.losses.wrap adapts losses of pytorch-metric-learning"
        )
    if isinstance(loss, PmlLoss) and not loss.takes_references:
        loss.rehearse(references=True, classes=4, dim=dim)
