"""Gradients by formula: added without an autograd graph, or computed where autograd would waste memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def add_to_gradients(parameters: Sequence[Tensor], directions: Sequence[Tensor], weight: float) -> None:
    """Add `weight * direction` to the gradient of every parameter that has one, in a few fused operations."""
    pairs = [(value.grad, way) for value, way in zip(parameters, directions, strict=True) if value.grad is not None]
    if pairs and weight:
        torch._foreach_add_([gradient for gradient, _ in pairs], [way for _, way in pairs], alpha=weight)


@torch.no_grad()
def common_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Measure the length of all `tensors` as one vector, on the device of the first; 0 where there are none."""
    if not tensors:
        return torch.zeros(())
    norms = [norm.to(tensors[0].device) for norm in torch._foreach_norm(list(tensors))]
    return torch.linalg.vector_norm(torch.stack(norms))


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse second derivatives in the `backward` of an autograd function.

    torch's own `once_differentiable` lets them pass as zeros where the incoming gradient is a constant.
    """

    def guarded(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():  # only so under create_graph=True
            raise RuntimeError(
                "this function has no second derivative: call backward or grad without create_graph=True"
            )
        return backward(ctx, *grads)

    return guarded
