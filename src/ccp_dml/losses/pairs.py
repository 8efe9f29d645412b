"""Which references are positives and which negatives of which anchor: what all pair losses start from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.functional.distances import NORMALISERS, at_least_float32, pairwise_distances, pairwise_similarities
from ccp_dml.losses.activity import note_pairs


@dataclass(frozen=True)
class Pairs:
    """Normalised vectors with the relation of every anchor to every reference."""

    anchors: Tensor  # (B, D)
    references: Tensor  # (R, D)
    positive: Tensor  # (B, R) bool: same class; a sample is no positive of itself
    negative: Tensor  # (B, R) bool: another class

    def masks(self) -> tuple[Tensor, Tensor]:
        """`positive` and `negative` as numbers 1 and 0, which multiply terms faster than booleans do."""
        return self.positive.to(self.anchors.dtype), self.negative.to(self.anchors.dtype)

    def distances(self) -> Tensor:
        """L2 distances (B, R)."""
        return self._noted(pairwise_distances(self.anchors, self.references))

    def similarities(self) -> Tensor:
        """Dot products (B, R); cosines where the vectors have unit length."""
        return self._noted(pairwise_similarities(self.anchors, self.references))

    def _noted(self, values: Tensor) -> Tensor:
        note_pairs(values, self.positive, self.negative)
        return values


def pair_up(
    embeddings: Tensor,
    labels: Tensor,
    ref_embeddings: Tensor | None = None,
    ref_labels: Tensor | None = None,
    normalise: str = "clip",
) -> Pairs:
    """Pairs of `embeddings` (B, D) with `ref_embeddings` (R, D), by `labels` (B,) and `ref_labels` (R,).

    Without references the batch is its own reference set, and self-pairs are left out. `normalise` is "clip", "l2" or
    "none". Half precision is computed in float32.
    """
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels belong together: give both or neither")
    _check_labelled("", embeddings, labels)
    same_set = ref_embeddings is None or ref_labels is None
    ref_embeddings = embeddings if ref_embeddings is None else ref_embeddings
    ref_labels = labels if ref_labels is None else ref_labels
    _check_labelled("ref_", ref_embeddings, ref_labels)
    if embeddings.shape[1] != ref_embeddings.shape[1]:
        raise ValueError(f"embeddings have {embeddings.shape[1]} dimensions, ref_embeddings {ref_embeddings.shape[1]}")

    normaliser = NORMALISERS[normalise]
    anchors = normaliser(at_least_float32(embeddings))
    references = anchors if same_set else normaliser(at_least_float32(ref_embeddings))

    labels, ref_labels = labels.to(embeddings.device), ref_labels.to(embeddings.device)
    positive = labels[:, None] == ref_labels[None, :]
    negative = ~positive
    if same_set:
        positive.fill_diagonal_(False)
    return Pairs(anchors, references, positive, negative)


def mean_of_non_zero(terms: Tensor) -> Tensor:
    """Mean of the non-negative `terms` that are not zero; zero, with a gradient of zeros, when all are."""
    return terms.sum() / torch.count_nonzero(terms).clamp(min=1)


def _check_labelled(prefix: str, embeddings: Tensor, labels: Tensor) -> None:
    if embeddings.dim() != 2:
        raise ValueError(f"{prefix}embeddings must be (rows, dimensions), got shape {tuple(embeddings.shape)}")
    if not embeddings.is_floating_point():
        raise ValueError(f"{prefix}embeddings must be floating-point numbers, got {embeddings.dtype}")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{prefix}labels must be one per row of {prefix}embeddings: "
            f"got shape {tuple(labels.shape)} for {len(embeddings)} rows"
        )
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise ValueError(f"{prefix}labels must be integers, got {labels.dtype}")


def check_normalise(normalise: str) -> str:
    """`normalise` itself, if there is a normalisation of that name."""
    if normalise not in NORMALISERS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISERS)}, got {normalise!r}")
    return normalise
