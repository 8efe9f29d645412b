"""Gradients that hold the rows that count and nothing else, for parameters of which few rows count in a step.

`as_rows` gives a parameter (..., D) to a loss as references (R, D) that ask for such a gradient. A function that knows
which rows count asks `asks_for_rows` in its forward pass and returns `rows_gradient` from its backward pass; any other
function returns a dense gradient, which is right, too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ccp_dml.functional.gradients import common_norm

_MARK = "asks_for_rows"


def as_rows(parameter: Tensor) -> Tensor:
    """Give a parameter (..., D) as rows (R, D), whose gradient may be sparse. They share memory."""
    rows: Tensor = _Rows.apply(parameter)
    setattr(rows, _MARK, True)
    return rows


def asks_for_rows(references: Tensor) -> bool:
    """Tell whether `references` come from `as_rows`. Ask for the very object: what is computed from it does not."""
    return getattr(references, _MARK, False)


def rows_gradient(rows: Tensor, columns: Tensor, count: int) -> Tensor:
    """Make a gradient (count, D) of `rows` (U, D) that stand at `columns` (U,), ascending; all others are zero."""
    return torch.sparse_coo_tensor(
        columns.unsqueeze(0), rows, (count, rows.shape[1]), check_invariants=False, is_coalesced=True
    )


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        ctx.shape = parameter.shape
        return parameter.view(-1, parameter.shape[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if not gradient.is_sparse:
            return gradient.reshape(ctx.shape)
        gradient = gradient.coalesce()
        indices = torch.stack(torch.unravel_index(gradient.indices()[0], ctx.shape[:-1]))
        return torch.sparse_coo_tensor(indices, gradient.values(), ctx.shape, check_invariants=False, is_coalesced=True)


@torch.no_grad()
def clip_gradients(
    parameters: Sequence[Tensor],
    most: float,
    divided: Sequence[Tensor] = (),
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Scale all gradients down so that their common norm is at most `most`; return the norm before.

    It does what torch's `clip_grad_norm_` does, and takes gradients of rows, too. With `total`, this process has a part
    of the parameters `divided`, others have the rest, and `total` adds up what all give it.
    """
    for value in (*parameters, *divided):
        if value.grad is not None and value.grad.is_sparse:
            value.grad = value.grad.coalesce()
    alike, own = (_numbers_of_gradients(values) for values in (parameters, divided))
    norm = common_norm([*alike, *own] if total is None else alike)
    if total is not None:
        norm = (norm.square() + total(common_norm(own).square().to(norm))).sqrt()
    torch._foreach_mul_([*alike, *own], (most / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _numbers_of_gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    """List the gradients of those that have one; of sparse gradients the rows that they hold."""
    gradients = [value.grad for value in parameters if value.grad is not None]
    return [gradient.values() if gradient.is_sparse else gradient for gradient in gradients]
