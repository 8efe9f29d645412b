"""Measure how tightly classes are covered, and which are covered worst."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.functional.distances import pairwise_distances
from ccp_dml.functional.geometry import mean_k_center_radius

WORST = 5  # classes that are named


@dataclass(frozen=True)
class ClassRadius:
    name: str
    radius: float


@dataclass(frozen=True)
class Covering:
    """Radii of a set's classes."""

    mean: float
    largest: float
    worst: list[ClassRadius]  # the largest first
    radii: dict[str, float]  # of every class, by its name


def covered_by_own_images(embeddings: Tensor, labels: Tensor, names: Sequence[str]) -> Covering:
    """Measure unseen classes as the paper does: per class the mean over k = 1..n of the radius that k images leave.

    `embeddings` are (N, D), `labels` (N,) index `names`.
    """
    radii, classes = mean_k_center_radius(embeddings, labels)
    return _covering(radii, [names[label] for label in classes.tolist()])


def covered_by_proxies(
    embeddings: Tensor, labels: Tensor, names: Sequence[str], proxies: Mapping[str, Tensor]
) -> Covering | None:
    """Measure the generalisation bound's covering radius: the largest distance from an image to its nearest proxy.

    `embeddings` are (N, D), `labels` (N,) index `names`. `proxies` (P, D) by the name of their class need not be of all
    classes; those without any are left out. None where no class has any.
    """
    present = [label for label in torch.unique(labels).tolist() if names[label] in proxies]
    if not present:
        return None
    radii = [
        pairwise_distances(embeddings[labels == label], proxies[names[label]].to(embeddings)).amin(dim=1).amax()
        for label in present
    ]
    return _covering(torch.stack(radii), [names[label] for label in present])


def _covering(radii: Tensor, names: Sequence[str]) -> Covering:
    order = radii.argsort(descending=True, stable=True)[:WORST].tolist()
    return Covering(
        mean=float(radii.mean()),
        largest=float(radii.max()),
        worst=[ClassRadius(names[place], float(radii[place])) for place in order],
        radii={name: float(radius) for name, radius in zip(names, radii, strict=True)},
    )
