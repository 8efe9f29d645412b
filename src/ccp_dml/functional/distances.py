"""Distances (small = close), similarities (large = close) and the two ways to normalise a vector."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

# Squared distances below this share of |a|^2 + |b|^2 are rounding noise of the double-precision sum, not distance.
_ROUNDING_NOISE = 1e-14
# Shorter vectors are divided by this instead of by their length, so that zero stays zero.
_L2_FLOOR = 1e-12
# Pairs computed at a time: what stays in a processor's cache, and what keeps a GPU busy.
_BLOCK_PAIRS = {"cpu": 1 << 17, "cuda": 1 << 24}


def for_device(table: Mapping[str, T], device: torch.device) -> T:
    """Look up what suits a device: a processor ("cpu"), or anything else, which is taken for a GPU ("cuda")."""
    return table.get(device.type, table["cuda"])


def clip_normalise(v: Tensor) -> Tensor:
    """Compute `v / max(1, ||v||)` over the last dimension: the identity in the unit ball, hence 1-Lipschitz (D20)."""
    v = v if v.is_floating_point() else v.float()
    norms = lengths_of(at_least_float32(v)).unsqueeze(-1)
    return (v / norms.clamp(min=1.0)).to(v.dtype)


def l2_normalise(v: Tensor) -> Tensor:
    """Compute `v / ||v||` over the last dimension; a zero vector stays zero."""
    v = v if v.is_floating_point() else v.float()
    whole = at_least_float32(v)
    return (whole / lengths_of(whole).unsqueeze(-1).clamp(min=_L2_FLOOR)).to(v.dtype)


def lengths_of(v: Tensor) -> Tensor:
    """Measure the lengths (...) of vectors (..., D), also of those whose squares float32 cannot hold (above 1.8e19).

    A length that float32 cannot hold itself is NaN, so that nobody divides by infinity and goes on with zeros. On a
    processor, squares are summed again only where that is needed; other devices would have to be waited for to know.
    """
    if v.dtype == torch.float64 or torch.compiler.is_compiling():
        return torch.linalg.vector_norm(v, dim=-1)
    if v.device.type == "cpu":
        lengths = torch.linalg.vector_norm(v, dim=-1)
        if math.isfinite(lengths.detach().sum()):  # one pass where `isfinite` takes five
            return lengths
    lengths = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float64).to(v.dtype)
    return lengths.masked_fill(torch.isinf(lengths), torch.nan)


def leave_as_is(v: Tensor) -> Tensor:
    """Return `v` unchanged: for vectors that are normalised already, or must not be."""
    return v


NORMALISERS: dict[str, Callable[[Tensor], Tensor]] = {
    "clip": clip_normalise,
    "l2": l2_normalise,
    "none": leave_as_is,
}


def normalising_factors(norms: Tensor, normalise: str) -> tuple[Tensor, Tensor]:
    """Find factors c that normalise vectors of the given `norms`, and which are long; both of the norms' shape.

    The normaliser of that name makes c v of a vector v. Of a long vector, it keeps the direction alone.
    """
    if normalise == "none":
        return torch.ones_like(norms), torch.zeros_like(norms, dtype=torch.bool)
    floor = {"clip": 1.0, "l2": _L2_FLOOR}[normalise]
    return norms.clamp(min=floor).reciprocal_(), norms > floor


def at_least_float32(v: Tensor) -> Tensor:
    """Convert half precision to float32, where sums over many pairs are still accurate; float64 stays."""
    return v if v.dtype == torch.float64 else v.float()


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Make a block in which products keep the precision of their factors, also where autocast would lower it.

    Most steps have no autocast: then there is nothing to switch off, which takes longer than a small product.
    """
    is_on = device.type != "meta" and torch.is_autocast_enabled(device.type)  # torch raises for shapes alone
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


def pairwise_similarities(a: Tensor, b: Tensor) -> Tensor:
    """Multiply the rows of `a` (..., N, D) and `b` (..., M, D): dot products (..., N, M), in float32 at least."""
    _check_rows(a, b)
    with without_autocast(a.device):
        return at_least_float32(a) @ at_least_float32(b).transpose(-2, -1)


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """Measure L2 distances (..., N, M) of the rows of `a` (..., N, D) and `b` (..., M, D), in float32 at least.

    One matrix product, in double precision because `|a|^2 + |b|^2 - 2ab` cancels for neighbours: in float32, two equal
    unit vectors would come out some 5e-4 apart, here exactly 0. Relative to the vectors' length, distances from 1e-3
    up are right to float32's rounding, those of 1e-5 to four digits, and those below 1e-7 count as zero. No gradient
    flows: losses measure their pairs by `losses.reference_values`.
    """
    return pairwise_squared_distances(a, b).sqrt_()


def pairwise_squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Measure squared L2 distances (..., N, M) as `pairwise_distances` does."""
    _check_rows(a, b)
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    squared = torch.empty(*a.shape[:-1], b.shape[-2], dtype=dtype, device=a.device)
    block = max(1, for_device(_BLOCK_PAIRS, a.device) // max(1, squared[..., :1].numel()))
    with torch.no_grad(), without_autocast(a.device):
        a = a.double()
        a_squared, a = _squared_norms(a), -2.0 * a  # (..., N, 1), (..., N, D)
        for columns, some in zip(squared.split(block, dim=-1), b.split(block, dim=-2), strict=True):
            some = some.double().transpose(-2, -1)  # (..., D, m)
            columns.copy_((a @ some).add_(a_squared).add_(_squared_norms(some, dim=-2)).clamp_(min=0.0))
    return squared


def _squared_norms(v: Tensor, dim: int = -1) -> Tensor:
    # Shortened by more than rounding can add up to, so that what is noise falls below zero and is clamped.
    return torch.linalg.vector_norm(v, dim=dim, keepdim=True).square_().mul_(1.0 - _ROUNDING_NOISE)


def _check_rows(a: Tensor, b: Tensor) -> None:
    if min(a.dim(), b.dim()) < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1]:
        raise ValueError(f"expected a (..., N, D) and b (..., M, D), got {tuple(a.shape)} and {tuple(b.shape)}")
