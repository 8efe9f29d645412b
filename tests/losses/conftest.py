"""Samples, and their pairs one by one in plain Python numbers: slow, and hard to get wrong."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Arguments = tuple[Tensor, ...]  # embeddings, labels and perhaps ref_embeddings, ref_labels
Pair = tuple[bool, float, float]  # same class?, distance, similarity


def _clipped(v: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in v))
    return [x / max(1.0, length) for x in v]


@pytest.fixture
def rows_of_pairs() -> Callable[..., list[list[Pair]]]:
    """For each sample of `embeddings, labels[, ref_embeddings, ref_labels]`, its pairs with all references."""

    def rows(e: Tensor, y: Tensor, r: Tensor | None = None, ry: Tensor | None = None) -> list[list[Pair]]:
        samples = [_clipped(v) for v in e.tolist()]
        references = samples if r is None else [_clipped(v) for v in r.tolist()]
        ref_labels = (y if ry is None else ry).tolist()
        return [
            [
                (label == other, math.dist(a, b), sum(p * q for p, q in zip(a, b, strict=True)))
                for j, (b, other) in enumerate(zip(references, ref_labels, strict=True))
                if r is not None or i != j
            ]
            for i, (a, label) in enumerate(zip(samples, y.tolist(), strict=True))
        ]

    return rows


@pytest.fixture(params=["batch", "memory", "proxies", "near duplicates"])
def arguments(request: pytest.FixtureRequest) -> Arguments:
    """What a loss is called with, for each source of references; vectors inside and outside the unit ball."""
    generator = torch.Generator().manual_seed(3)

    def vectors(rows: int) -> Tensor:
        return torch.randn(rows, 6, generator=generator) * 0.4

    batch, labels = vectors(12), torch.arange(12) % 4
    if request.param == "batch":
        return batch, labels
    if request.param == "memory":  # of past batches, with classes that this batch lacks
        return batch, labels, vectors(30), torch.arange(30) % 7
    if request.param == "proxies":  # three per class
        return batch, labels, vectors(12), torch.arange(4).repeat_interleave(3)
    unit = torch.nn.functional.normalize(vectors(4), dim=1)  # tight classes, one sample twice
    tight = unit[labels] * 0.9 + 0.003 * vectors(12)
    tight[4] = tight[0]
    return tight, labels


@pytest.fixture
def crowd() -> Arguments:
    """Enough samples and references, close enough together, for pairs on both sides of every usual margin."""
    generator = torch.Generator().manual_seed(4)
    vectors = torch.randn(40 + 90, 16, generator=generator) / 4 + torch.eye(1, 16)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    return vectors[:40], torch.arange(40) // 4, vectors[40:], torch.arange(90) % 15


@pytest.fixture
def mean_of_non_zero() -> Callable[[list[float]], float]:
    def mean(terms: list[float]) -> float:
        terms = [term for term in terms if term > 0]
        return sum(terms) / len(terms) if terms else 0.0

    return mean
