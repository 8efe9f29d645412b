"""The pair losses as they are written down: float64, every pair, autograd. Slow, and hard to get wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss


def clipped(v):
    """The closed unit ball stays as it is, its surface included; outside of it, only the direction counts."""
    norms = v.norm(dim=1, keepdim=True)
    return torch.where(norms > 1, v / norms.clamp(min=1.0), v)


NORMALISED: dict[str, Callable[[Tensor], Tensor]] = {
    "clip": clipped,
    "l2": lambda v: v / v.norm(dim=1, keepdim=True).clamp(min=1e-12),
    "none": lambda v: v,
}


def written_down(loss, e, y, r=None, ry=None):
    """The value of `loss` on embeddings, labels and perhaps references, in float64."""
    a = NORMALISED[loss.normalise](e.double())
    b = a if r is None else NORMALISED[loss.normalise](r.double())
    same = y[:, None] == (y if ry is None else ry)[None, :]
    positive, negative = same, ~same
    if r is None:
        positive = same & ~torch.eye(len(y), dtype=torch.bool)
    return FORMULAS[type(loss)](loss, a, b, positive, negative)


def distances(a, b):
    """Differences first, so that nothing cancels; at distance zero, the gradient is zero."""
    apart = a[:, None] - b[None]
    equal = (apart == 0).all(-1)
    squared = apart.square().sum(-1)
    return torch.where(equal, 0.0, torch.where(equal, 1.0, squared).sqrt())


def mean_of_non_zero(terms):
    return terms.sum() / (terms > 0).sum().clamp(min=1)


def c2(loss, a, b, positive, negative):
    d = distances(a, b)
    pull = mean_of_non_zero(torch.relu(d - loss.positive_margin) * positive)
    return pull + mean_of_non_zero(torch.relu(loss.negative_margin - d) * negative)


def c1(loss, a, b, positive, negative):
    s = a @ b.T
    return ((torch.relu(1 - s) * positive).sum() + (torch.relu(s - loss.margin) * negative).sum()) / max(len(a), 1)


def triplet(loss, a, b, positive, negative):
    d = distances(a, b)
    if loss.references_as_anchors:
        d, positive, negative = d.T, positive.T, negative.T
    violations = torch.relu(d[:, :, None] - d[:, None, :] + loss.margin)  # (anchors, positives, negatives)
    return mean_of_non_zero(violations * (positive[:, :, None] & negative[:, None, :]))


def multi_similarity(loss, a, b, positive, negative):
    x = a @ b.T - loss.base
    pull = torch.log(1 + (torch.exp(-loss.alpha * x) * positive).sum(1)) / loss.alpha
    push = torch.log(1 + (torch.exp(loss.beta * x) * negative).sum(1)) / loss.beta
    return (pull + push).sum() / max(len(a), 1)


FORMULAS = {ContrastiveLoss: c2, CosineContrastiveLoss: c1, TripletLoss: triplet, MultiSimilarityLoss: multi_similarity}
