"""Multi-similarity loss (MS)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.functional.gradients import first_derivative_only
from ccp_dml.losses.pairs import Pairs, check_normalise, pair_up


class MultiSimilarityLoss(nn.Module):
    """MS: each pair weighs according to its own similarity and to that of the anchor's other pairs.

        mean over anchors of   1/alpha log(1 + sum over positives of exp(-alpha (s - base)))
                             + 1/beta  log(1 + sum over negatives of exp( beta (s - base)))

    `base` is the paper's lambda. Evaluated as log-sum-exp, so no `beta` overflows.

    Inputs: `embeddings` (B, D), `labels` (B,), optionally `ref_embeddings` (R, D), `ref_labels` (R,). Output: a scalar.

    When to use: a strong baseline on large batches; sensitive to its three parameters.

        loss = MultiSimilarityLoss(alpha=2.0, beta=40.0, base=0.5)
        loss(embeddings, labels).backward()

    Wang, Han, Huang, Dong, Scott: Multi-similarity loss with general pair weighting. CVPR 2019.
    """

    def __init__(self, alpha: float = 2.0, beta: float = 40.0, base: float = 0.5, *, normalise: str = "clip") -> None:
        super().__init__()
        if not (alpha > 0 and beta > 0) or math.isnan(base):
            raise ValueError(
                "multi-similarity loss needs alpha > 0 and beta > 0, and a number as base, "
                f"got {alpha}, {beta} and {base}"
            )
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.normalise = check_normalise(normalise)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        holders: Processes = ALONE,
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise, holders)
        of_anchors: Tensor = _PullAndPush.apply(
            pairs.similarities(), pairs.of_shared_classes(), self.alpha, self.beta, self.base
        )
        return of_anchors.sum() / max(len(embeddings), 1)

    def of_mixtures(self, similarities: Tensor, taking_part: Tensor, share: float) -> Tensor:
        """Compute the loss against references (B, M) that are positives with this `share`, else negatives (Metrix).

        mean over anchors of   1/alpha log(1 + share       sum of exp(-alpha (s - base)))
                             + 1/beta  log(1 + (1 - share) sum of exp( beta (s - base)))
        """
        above = similarities - self.base
        pull = _log_one_plus_weighted_sum_exp(-self.alpha * above, taking_part, share)
        push = _log_one_plus_weighted_sum_exp(self.beta * above, taking_part, 1 - share)
        return (pull / self.alpha + push / self.beta).sum() / max(len(similarities), 1)

    def extra_repr(self) -> str:
        return f"{self.alpha=}, {self.beta=}, {self.base=}, {self.normalise=}".replace("self.", "")


class _PullAndPush(torch.autograd.Function):
    """The loss of each anchor (B,), given its similarities s (B, R).

    With x = s - base, the weights of the pairs, which are also the gradient, need the same exponentials as the loss:

        dL/ds = -exp(-alpha x) / (1 + sum over positives of exp(-alpha x))     where the pair is positive
        dL/ds =  exp( beta x)  / (1 + sum over negatives of exp( beta x))      where it is negative

    `own` has the columns where positives can be: all others hold negatives alone. Its holders add up the exponentials.
    """

    @staticmethod
    def forward(ctx: Any, similarities: Tensor, own: Pairs, alpha: float, beta: float, base: float) -> Tensor:
        columns = slice(None) if own.columns is None else own.columns
        of_own = similarities[:, columns]  # (B, U)
        pulling = (of_own * -alpha).masked_fill_(~own.positive, -torch.inf)
        pull, pull_total = _log_one_plus_sum_exp_(pulling, less=-alpha * base, holders=own.holders)
        weights = similarities * beta  # (B, R)
        weights[:, columns] = (of_own * beta).masked_fill_(own.same_class, -torch.inf)
        push, total = _log_one_plus_sum_exp_(weights, less=beta * base, holders=own.holders)
        weights[:, columns] -= pulling * (total / pull_total)  # where one of them is not zero, the other is
        ctx.save_for_backward(weights, total)
        return (pull / alpha + push / beta).squeeze(1)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        weights, total = ctx.saved_tensors
        return weights * (grad.unsqueeze(1) / total), None, None, None, None


def _log_one_plus_sum_exp_(exponents: Tensor, less: float, holders: Processes) -> tuple[Tensor, Tensor]:
    """Compute `log(1 + sum of exp(exponents - less))` of each row, and a total (B, 1) each.

    In place, `exponents` (B, R) become the derivatives of the rows' results times their totals. Each of `holders` has
    some of a row's exponents.
    """
    rows, length = exponents.shape
    highest = exponents.amax(1, keepdim=True).sub_(less).clamp_(min=0.0) if length else exponents.new_zeros(rows, 1)
    highest = holders.largest(highest)
    total = holders.total(exponents.sub_(highest + less).exp_().sum(1, keepdim=True))
    total = total + torch.exp(-highest)  # the "1 +"
    return highest + total.log(), total


def _log_one_plus_weighted_sum_exp(exponents: Tensor, taking_part: Tensor, weight: float) -> Tensor:
    """Compute `log(1 + weight * sum of exp(exponents))` of each row (B,) over the exponents (B, M) that take part."""
    exponents = (exponents + math.log(weight)).masked_fill(~taking_part, -torch.inf)
    return torch.logsumexp(nn.functional.pad(exponents, (1, 0)), dim=1)  # a zero in front: the "1 +"
