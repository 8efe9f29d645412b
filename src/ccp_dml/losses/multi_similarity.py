"""Multi-similarity loss (MS)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccp_dml.losses.pairs import check_normalise, pair_up


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
        if alpha <= 0 or beta <= 0:
            raise ValueError(f"multi-similarity loss needs alpha > 0 and beta > 0, got {alpha} and {beta}")
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
    ) -> Tensor:
        pairs = pair_up(embeddings, labels, ref_embeddings, ref_labels, self.normalise)
        above_base = pairs.similarities() - self.base
        pull = _log_one_plus_sum_exp(-self.alpha * above_base, pairs.positive) / self.alpha  # (B,)
        push = _log_one_plus_sum_exp(self.beta * above_base, pairs.negative) / self.beta  # (B,)
        return (pull + push).sum() / max(len(embeddings), 1)

    def extra_repr(self) -> str:
        return f"{self.alpha=}, {self.beta=}, {self.base=}, {self.normalise=}".replace("self.", "")


def _log_one_plus_sum_exp(exponents: Tensor, mask: Tensor) -> Tensor:
    """`log(1 + sum of exp(exponents))` (B,) over the masked part of each row of `exponents` (B, R)."""
    # The appended zero is the "1 +"; it also keeps the gradient of a row without any pair from becoming inf - inf.
    return torch.logsumexp(F.pad(exponents.masked_fill(~mask, -torch.inf), (0, 1)), dim=1)
