"""Terms whose gradient is known in closed form, added without an autograd graph."""

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def add_to_gradients(parameters: Sequence[Tensor], directions: Sequence[Tensor], weight: float) -> None:
    """`gradient += weight * direction` for every parameter that has a gradient, in a few fused operations."""
    pairs = [(value.grad, way) for value, way in zip(parameters, directions, strict=True) if value.grad is not None]
    if pairs and weight:
        torch._foreach_add_([gradient for gradient, _ in pairs], [way for _, way in pairs], alpha=weight)
