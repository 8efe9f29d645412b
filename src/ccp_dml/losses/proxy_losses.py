"""Losses with proxies of their own: ProxyAnchor, ProxyNCA++ and SoftTriple, from pytorch-metric-learning.

Each owns one or several vectors per class, trained together with the network, normally at a higher learning rate.
They compare samples with these vectors only, so they take no references.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccp_dml.functional.distances import l2_normalise, pairwise_similarities
from ccp_dml.functional.labels import refuse_labels_out_of_range
from ccp_dml.losses.pairs import check_labelled
from ccp_dml.losses.pml import PmlLoss


class ProxyAnchorLoss(nn.Module):
    """ProxyAnchor: each proxy is an anchor that draws its class and repels the others, the hardest samples most.

          mean over proxies with positives of  log(1 + sum over positives of exp(-alpha (s - margin)))
        + mean over all proxies of             log(1 + sum over negatives of exp( alpha (s + margin)))

    `s` is the cosine of proxy and sample; `margin` is the paper's delta.

    Inputs: `embeddings` (B, D), `labels` (B,) in 0..classes-1. Output: a scalar.

    When to use: fast convergence with one image per class in a batch.

        loss = ProxyAnchorLoss(margin=0.1, alpha=32, classes=100, dim=128)
        loss(embeddings, labels).backward()

    Kim, Kim, Cho, Kwak: Proxy anchor loss for deep metric learning. CVPR 2020.
    """

    def __init__(self, margin: float = 0.1, alpha: float = 32.0, *, classes: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        if not alpha > 0 or math.isnan(margin):
            raise ValueError(f"the proxy anchor loss needs alpha > 0 and a number as margin, got {alpha} and {margin}")
        self.loss = PmlLoss.named(
            "ProxyAnchorLoss", {"margin": margin, "alpha": alpha}, classes=classes, dim=dim, seed=seed
        )

    @property
    def proxies(self) -> nn.Parameter:
        """Give the un-normalised proxies (classes, dim)."""
        return self.loss.loss.proxies  # type: ignore[return-value]

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(embeddings, labels)
        return loss


_LOWEST_TEMPERATURE = 4 / 87
"""Of the library's ProxyNCA: exp(-d^2 / temperature), where d^2 is up to 4, vanishes in single precision below it."""


class ProxyNcaPlusPlusLoss(nn.Module):
    """ProxyNCA++: each sample chooses its class among all proxies by a softmax over squared distances.

        mean over samples of  -log softmax_p(-d(x, p)^2 / temperature)  at  p = the proxy of the sample's class

    `d` is the distance of L2-normalised vectors.

    Inputs: `embeddings` (B, D), `labels` (B,) in 0..classes-1. Output: a scalar.

    When to use: the plainest loss with proxies, a classifier without bias.

        loss = ProxyNcaPlusPlusLoss(temperature=0.1, classes=100, dim=128)
        loss(embeddings, labels).backward()

    Teh, DeVries, Taylor: ProxyNCA++: Revisiting and revitalizing proxy neighborhood component analysis. ECCV 2020.
    """

    def __init__(self, temperature: float = 0.1, *, classes: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        if not temperature > 0:  # NaN is not, either
            raise ValueError(f"the temperature of ProxyNCA++ must be positive, got {temperature}")
        self.temperature, self.classes = temperature, classes
        self.loss = PmlLoss.named(
            "ProxyNCALoss", {"softmax_scale": 1 / temperature}, classes=classes, dim=dim, seed=seed
        )

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if self.temperature >= _LOWEST_TEMPERATURE or not len(labels):
            loss: Tensor = self.loss(embeddings, labels)
            return loss
        # The library would leave out the samples that are farthest from their proxies, or average none at all.
        check_labelled("", embeddings, labels)
        labels = labels.to(embeddings.device, torch.int64)
        refuse_labels_out_of_range(labels, self.classes)
        proxies: Tensor = self.loss.loss.proxies  # type: ignore[assignment]
        cosines = pairwise_similarities(l2_normalise(embeddings), l2_normalise(proxies))  # d^2 = 2 - 2 cosines
        return F.cross_entropy(cosines * (2 / self.temperature), labels)


class SoftTripleLoss(nn.Module):
    """SoftTriple: a softmax over classes, each of which is a soft choice among several centres.

        S(x, c) = sum over centres k of  softmax_k(s(x, w_ck) / gamma) s(x, w_ck)
        mean over samples of  -log softmax_c(la (S(x, c) - margin [c = y]))  at  c = y
        + tau * mean over classes and their pairs of centres of  |w_cj - w_ck| / 2

    `s` is the cosine of sample and centre; `la` is the paper's lambda, `margin` its delta. The last term, which lets
    superfluous centres of a class coincide, is added here: the library leaves it out.

    Inputs: `embeddings` (B, D), `labels` (B,) in 0..classes-1. Output: a scalar.

    When to use: where classes fall into several groups of images.

        loss = SoftTripleLoss(la=20, gamma=0.1, tau=0.2, margin=0.01, centres_per_class=10, classes=100, dim=128)
        loss(embeddings, labels).backward()

    Qian, Shang, Sun, Hu, Li, Jin: SoftTriple loss: Deep metric learning without triplet sampling. ICCV 2019.
    """

    def __init__(
        self,
        la: float = 20.0,
        gamma: float = 0.1,
        tau: float = 0.2,
        margin: float = 0.01,
        centres_per_class: int = 10,
        *,
        classes: int,
        dim: int,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not (la > 0 and gamma > 0 and centres_per_class >= 1) or math.isnan(tau) or math.isnan(margin):
            raise ValueError(
                "SoftTriple needs la > 0, gamma > 0, at least one of centres_per_class, and numbers as tau and margin, "
                f"got {la}, {gamma}, {centres_per_class}, {tau} and {margin}"
            )
        self.tau, self.centres_per_class = tau, centres_per_class
        arguments = {"la": la, "gamma": gamma, "margin": margin, "centers_per_class": centres_per_class}
        self.loss = PmlLoss.named("SoftTripleLoss", arguments, classes=classes, dim=dim, seed=seed)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(embeddings, labels)
        if self.tau and self.centres_per_class > 1:
            centres: Tensor = self.loss.loss.fc.T  # type: ignore[assignment]
            loss = loss + self.tau * _spread_of_centres(centres.unflatten(0, (-1, self.centres_per_class)))
        return loss


def _spread_of_centres(centres: Tensor) -> Tensor:
    """Halve the mean distance between the normalised centres (C, K, D) of a class; half, as the paper divides."""
    centres = l2_normalise(centres)
    one, other = torch.triu_indices(centres.shape[1], centres.shape[1], offset=1, device=centres.device)
    similarities = pairwise_similarities(centres, centres)[:, one, other]  # (C, K (K - 1) / 2)
    return (2.0 + 1e-5 - 2.0 * similarities).sqrt().mean() / 2  # the offset keeps the gradient of equal centres finite
