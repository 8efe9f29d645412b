"""Find the few references that a hinge loss can feel, among very many.

A negative farther than a hinge's margin adds nothing, neither to the loss nor to a gradient. One product in single
precision, a block of references at a time, tells which references are too far for every anchor; what is left is
measured exactly, in double precision. With anchors a, references b = c v (see `reference_values`) and reaches r:

    ||a_i - b_j|| < r_i        if and only if   c_j a_i . v_j - (||a_i||^2 - r_i^2) / 2  >  ||b_j||^2 / 2
    a_i . b_j     > least      if and only if   c_j a_i . v_j - least                    >  0

The right side is lowered by more than rounding can amount to, so that no pair is missed; those that were not meant
fall away when they are measured. Time: one product. Memory: one block of the product, and the references found.
"""

import torch
from torch import Tensor

from ccp_dml.functional.distances import at_least_float32, lengths_of, normalising_factors, without_autocast
from ccp_dml.losses.reference_values import blocks_of

# Bounds the error of a product relative to the lengths of its vectors. torch may be told to multiply float32 with the
# eight bits of bfloat16: two roundings of 2^-9. The rest is for the summation.
_ROUNDING = 2**-8 + 2**-10


def columns_within(anchors: Tensor, references: Tensor, normalise: str, reach: Tensor | float) -> Tensor:
    """Tell which normalised references (R,) may be nearer to an anchor than its `reach`, (B, 1) or one for all."""
    squares = anchors.square().sum(1, keepdim=True)  # (B, 1)
    reach = torch.as_tensor(reach, dtype=squares.dtype, device=squares.device)
    least = ((squares - reach.square()) / 2).masked_fill(~(reach > 0), torch.inf)  # nothing is nearer than zero
    return _above(anchors, references, normalise, least, share_of_square=0.5)


def columns_above(anchors: Tensor, references: Tensor, normalise: str, similarity: float) -> Tensor:
    """Tell which normalised references (R,) may have more than a `similarity` to an anchor."""
    return _above(anchors, references, normalise, anchors.new_full((len(anchors), 1), similarity), share_of_square=0.0)


@torch.no_grad()
def _above(anchors: Tensor, references: Tensor, normalise: str, least: Tensor, share_of_square: float) -> Tensor:
    """Tell for which references b some c a . v - `least` (B, 1) may be above `share_of_square` x ||b||^2."""
    norms = torch.empty(len(references), dtype=at_least_float32(references[:0]).dtype, device=references.device)
    highest, lengths = torch.empty_like(norms), torch.empty_like(norms)
    rows, least = anchors.to(norms.dtype), least.T
    with without_autocast(anchors.device):
        for block in blocks_of(references):
            some = at_least_float32(references[block])
            norms[block] = lengths_of(some)
            factors, _ = normalising_factors(norms[block], normalise)
            torch.mul(norms[block], factors, out=lengths[block])
            products = (some @ rows.T).mul_(factors.unsqueeze(1)).sub_(least)  # (block, B)
            torch.amax(products, 1, out=highest[block])
    squares = lengths.square_()  # ||b||^2
    longest = rows.square().sum(1).amax()
    bound = share_of_square * squares - 0.5 * _ROUNDING * (longest + squares)  # ||a|| ||b|| is at most half the sum
    return ~(highest < bound)  # "not below" rather than "above": NaN must not be lost
