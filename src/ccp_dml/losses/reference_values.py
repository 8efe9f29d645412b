"""Compare normalised anchors with references as they are stored, un-normalised, with gradients by formula.

Autograd would keep several copies of the references and walk through all of them again; here, nothing as large as the
references is made but their gradient. A reference v enters as b = c v with c = 1 / max(floor, ||v||), where the floor
is 1 ("clip") or next to 0 ("l2"); "none" leaves c at 1. A reference is `long` if ||v|| > floor: then its length
does not count, and its gradient is perpendicular to it.

    similarities    s_ij = c_j a_i . v_j                with G_ij = dL/ds_ij
        dL/da_i = sum over j of G_ij c_j v_j
        dL/dv_j = sum over i of G_ij c_j a_i  -  [long] c_j^2 v_j sum over i of G_ij s_ij

    distances       d_ij = ||a_i - b_j||                with W_ij = dL/dd_ij / d_ij, 0 where d_ij = 0
        dL/da_i = sum over j of W_ij (a_i - b_j)
        dL/db_j = sum over i of W_ij (b_j - a_i)
        dL/dv_j = c_j (dL/db_j  -  [long] b_j (b_j . dL/db_j))

`columns` lists the references that count; the others get a gradient of zero. None: all of them count.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ccp_dml.functional.distances import (
    NORMALISERS,
    at_least_float32,
    for_device,
    lengths_of,
    normalising_factors,
    pairwise_squared_distances,
    without_autocast,
)
from ccp_dml.functional.gradients import first_derivative_only
from ccp_dml.functional.row_gradients import asks_for_rows, rows_gradient

# Numbers of the references at a time: what stays in a processor's cache, and what keeps a GPU busy.
_BLOCK_NUMBERS = {"cpu": 1 << 19, "cuda": 1 << 27}


def similarities_to(anchors: Tensor, references: Tensor, normalise: str, columns: Tensor | None = None) -> Tensor:
    """Multiply `anchors` (B, D) with the normalised `references` (R, D), of which `columns` (U,) count: (B, U)."""
    similarities: Tensor = _Similarities.apply(anchors, references, normalise, columns)
    return similarities


def distances_to(anchors: Tensor, references: Tensor, normalise: str, columns: Tensor | None = None) -> Tensor:
    """Measure L2 distances of `anchors` (B, D) to normalised `references` (R, D), where `columns` (U,) count: (B, U).

    They are as exact as those of `pairwise_distances`; the gradient at distance zero is zero.
    """
    distances: Tensor = _Distances.apply(anchors, references, normalise, columns)
    return distances


class _Similarities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, normalise: str, columns: Tensor | None) -> Tensor:
        chosen = at_least_float32(references if columns is None else references[columns])  # (U, D)
        dtype = torch.promote_types(anchors.dtype, chosen.dtype)
        anchors, chosen = anchors.to(dtype), chosen.to(dtype)
        factors, long = normalising_factors(lengths_of(chosen), normalise)  # (U,), (U,)
        by_reference = torch.empty(len(chosen), len(anchors), dtype=dtype, device=anchors.device)  # faster than (B, U)
        with without_autocast(anchors.device):
            for block in blocks_of(chosen):
                torch.mm(chosen[block], anchors.T, out=by_reference[block])
        similarities = by_reference.T.mul_(factors)
        ctx.save_for_backward(anchors, references, chosen, factors, long, similarities, columns)
        ctx.by_rows = asks_for_rows(references)
        return similarities

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        anchors, references, chosen, factors, long, similarities, columns = ctx.saved_tensors
        grad_anchors = grad_references = None
        with without_autocast(anchors.device):
            weights = grad * factors  # (B, U)
            if ctx.needs_input_grad[0]:
                grad_anchors = weights @ chosen
            if ctx.needs_input_grad[1]:
                along = ((weights * similarities).sum(0) * factors * long).unsqueeze(1)  # (U, 1)
                rows = torch.empty_like(chosen)
                for block in blocks_of(chosen):
                    torch.mm(weights[:, block].T, anchors, out=rows[block])
                    rows[block].addcmul_(along[block], chosen[block], value=-1)
                grad_references = _spread(rows, columns, references, ctx.by_rows)
        return grad_anchors, grad_references, None, None


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, normalise: str, columns: Tensor | None) -> Tensor:
        chosen = at_least_float32(references if columns is None else references[columns])  # (U, D)
        factors, long = normalising_factors(lengths_of(chosen), normalise)  # (U,), (U,)
        chosen = NORMALISERS[normalise](chosen)
        distances = pairwise_squared_distances(anchors, chosen).sqrt_()  # (B, U)
        ctx.save_for_backward(anchors, references, chosen, factors, long, distances, columns)
        ctx.by_rows = asks_for_rows(references)
        return distances

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        anchors, references, chosen, factors, long, distances, columns = ctx.saved_tensors
        grad_anchors = grad_references = None
        with without_autocast(anchors.device):
            weights = distances.reciprocal().nan_to_num_(posinf=0.0).mul_(grad)  # (B, U)
            anchors, chosen = anchors.to(weights.dtype), chosen.to(weights.dtype)
            if ctx.needs_input_grad[0]:
                grad_anchors = anchors * weights.sum(1, keepdim=True) - weights @ chosen
            if ctx.needs_input_grad[1]:
                rows = (chosen * weights.sum(0).unsqueeze(1)).addmm_(weights.T, anchors, alpha=-1)  # of b
                along = torch.linalg.vecdot(chosen, rows).mul_(long).unsqueeze(1)  # (U, 1)
                rows.addcmul_(along, chosen, value=-1).mul_(factors.unsqueeze(1))  # of v
                grad_references = _spread(rows, columns, references, ctx.by_rows)
        return grad_anchors, grad_references, None, None


def blocks_of(references: Tensor) -> Iterator[slice]:
    """Cut the rows of `references` (R, D) into blocks that are fast to work on one after the other."""
    numbers = for_device(_BLOCK_NUMBERS, references.device)
    rows = max(1, numbers // max(1, references.shape[1]))
    return (slice(start, min(start + rows, len(references))) for start in range(0, len(references), rows))


def _spread(rows: Tensor, columns: Tensor | None, references: Tensor, by_rows: bool) -> Tensor:
    """Put `rows` (U, D) where `columns` says, into a gradient for `references` (R, D) that is zero elsewhere."""
    rows = rows.to(references.dtype)
    if columns is None:
        return rows
    if by_rows:
        return rows_gradient(rows, columns, len(references))
    return torch.zeros_like(references).index_copy_(0, columns, rows)
