"""Which references are positives and which negatives of which anchor: what all pair losses start from."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ccp_dml.errors import no_tensor
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.functional.distances import NORMALISERS, at_least_float32, for_device
from ccp_dml.losses.activity import note_pairs, recording
from ccp_dml.losses.nearby import columns_above, columns_within
from ccp_dml.losses.reference_values import distances_to, similarities_to

# From so many pairs on, looking for the references that count pays off: soon on a processor (measured: from 50,000).
# On a GPU, a list of unknown length makes the step wait for the device, so it has to save gigabytes.
_PAIRS_WORTH_A_SEARCH = {"cpu": 1 << 16, "cuda": 1 << 27}


@dataclass(frozen=True)
class Pairs:
    """Anchors, references, and the relation of every anchor to every reference that counts.

    All R references count (U = R) until a loss says which do. The others are negatives that it cannot feel.

    Where several `holders` have a part of the references each, R are this process's own. A loss that takes its sums
    over references by `holders.total` is then the loss against all references, in every process.
    """

    anchors: Tensor  # (B, D), normalised
    labels: Tensor  # (B,)
    references: Tensor  # (R, D), as given
    ref_labels: Tensor  # (R,)
    normalise: str  # what is still to be done to the references
    same_set: bool  # whether the references are the anchors themselves
    columns: Tensor | None = None  # (U,) the references that count; None: all
    holders: Processes = ALONE  # who has the references

    @cached_property
    def same_class(self) -> Tensor:
        """Tell whether anchor and reference are of one class (B, U)."""
        ref_labels = self.ref_labels if self.columns is None else self.ref_labels[self.columns]
        return self.labels[:, None] == ref_labels[None, :]

    @cached_property
    def positive(self) -> Tensor:
        """Tell whether a pair is of one class (B, U); a sample is no positive of itself."""
        return self.same_class.clone().fill_diagonal_(False) if self.same_set else self.same_class

    @cached_property
    def negative(self) -> Tensor:
        """Tell whether a pair is of two classes (B, U)."""
        return ~self.same_class

    def masks(self) -> tuple[Tensor, Tensor]:
        """Convert `positive` and `negative` to numbers 1 and 0, which multiply terms faster than booleans do."""
        return self.positive.to(self.anchors.dtype), self.negative.to(self.anchors.dtype)

    def distances(self) -> Tensor:
        """Measure L2 distances (B, U)."""
        return self._noted(distances_to(self.anchors, self.references, self.normalise, self.columns))

    def similarities(self) -> Tensor:
        """Compute dot products (B, U); cosines where the vectors have unit length."""
        return self._noted(similarities_to(self.anchors, self.references, self.normalise, self.columns))

    @property
    def are_many(self) -> bool:
        """Tell whether there are so many references that searching for the few that count pays off."""
        least = for_device(_PAIRS_WORTH_A_SEARCH, self.anchors.device)
        return not self.same_set and len(self.labels) * len(self.ref_labels) >= least

    def nearer_than(self, reach: Tensor | float) -> "Pairs":
        """Leave out references of other classes that no anchor has within its `reach`, (B, 1) or one for all."""
        if not self.are_many:
            return self
        return self._with(columns_within(self.anchors.detach(), self.references, self.normalise, reach))

    def more_similar_than(self, least: float) -> "Pairs":
        """Leave out references of other classes to which no anchor has a similarity above `least`."""
        if not self.are_many:
            return self
        return self._with(columns_above(self.anchors.detach(), self.references, self.normalise, least))

    def of_shared_classes(self) -> "Pairs":
        """Leave out all references of other classes than the anchors'."""
        return self._with(self._of_shared_class) if self.are_many else self

    @cached_property
    def _of_shared_class(self) -> Tensor:
        """Tell whether a reference (R,) is of the class of some anchor."""
        return torch.isin(self.ref_labels, self.labels.unique())

    def _with(self, wanted: Tensor) -> "Pairs":
        """Keep the `wanted` references (R,) and all positives."""
        columns = (self._of_shared_class | wanted).nonzero().squeeze(1)
        return self if 2 * len(columns) > len(wanted) else replace(self, columns=columns)  # a long list saves nothing

    def mean_of_non_zero(self, terms: Tensor) -> Tensor:
        """Average the non-negative `terms` that are not zero; zero, with a gradient of zeros, when all are."""
        count = self.holders.total(torch.count_nonzero(terms))
        return self.holders.total(terms.sum()) / count.clamp(min=1)

    def _noted(self, values: Tensor) -> Tensor:
        if not recording():
            return values
        left_out = 0 if self.columns is None else len(self.labels) * (len(self.ref_labels) - len(self.columns))
        note_pairs(values, self.positive, self.negative, left_out, self.holders)
        return values


def pair_up(
    embeddings: Tensor,
    labels: Tensor,
    ref_embeddings: Tensor | None = None,
    ref_labels: Tensor | None = None,
    normalise: str = "clip",
    holders: Processes = ALONE,
) -> Pairs:
    """Pair `embeddings` (B, D) with `ref_embeddings` (R, D), by `labels` (B,) and `ref_labels` (R,).

    Without references the batch is its own reference set, and self-pairs are left out. `normalise` is "clip", "l2" or
    "none". Half precision is computed in float32. Each of `holders` gives the references that it has, and the same
    embeddings as the others.
    """
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels belong together: give both or neither")
    check_labelled("", embeddings, labels)
    anchors = NORMALISERS[normalise](at_least_float32(embeddings))
    labels = labels.to(embeddings.device, torch.int64)  # of both sides: in a narrower type, 256 would become 0
    if ref_embeddings is None or ref_labels is None:
        return Pairs(anchors, labels, anchors, labels, "none", same_set=True)
    check_references(embeddings, ref_embeddings, ref_labels)
    anchors = holders.hand_out(anchors)
    ref_labels = ref_labels.to(labels)
    return Pairs(anchors, labels, ref_embeddings, ref_labels, normalise, same_set=False, holders=holders)


def check_labelled(prefix: str, embeddings: Tensor, labels: Tensor) -> None:
    """Raise unless `embeddings` (N, D) are real numbers and `labels` (N,) whole ones; the `prefix` names references."""
    for name, value in (("embeddings", embeddings), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise ValueError(no_tensor(f"{prefix}{name}", value))
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


def check_references(embeddings: Tensor, ref_embeddings: Tensor, ref_labels: Tensor) -> None:
    """Raise unless `ref_embeddings` (R, D) and `ref_labels` (R,) can be compared with `embeddings` (B, D)."""
    check_labelled("ref_", ref_embeddings, ref_labels)
    if embeddings.shape[1] != ref_embeddings.shape[1]:
        raise ValueError(f"embeddings have {embeddings.shape[1]} dimensions, ref_embeddings {ref_embeddings.shape[1]}")
    if embeddings.device != ref_embeddings.device:  # moving very many in every step would be slow, and not be noticed
        raise ValueError(
            f"embeddings are on {embeddings.device}, ref_embeddings on {ref_embeddings.device}: move these once, "
            "before training, for instance by proxies.to(device)"
        )


def check_normalise(normalise: str) -> str:
    """Return `normalise` if there is a normalisation of that name; raise if not."""
    if normalise not in NORMALISERS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISERS)}, got {normalise!r}")
    return normalise
