"""What can be searched: images with vectors, labels and attributes, wherever they are stored."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.functional.retrieval import nearest_references
from ccp_dml.serving.search.index_store import PinnedModel
from ccp_dml.serving.search.where import COLUMNS, Value


@dataclass(frozen=True)
class Item:
    """An indexed image."""

    id: int
    path: str
    label: str | None
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """A search result; results are sorted by distance, equal ones by id."""

    item: Item
    distance: float


@dataclass(frozen=True)
class Sample:
    """Some items, or all: their ids (N,), labels and vectors (N, D), in the order of ids."""

    ids: np.ndarray
    labels: list[str | None]
    vectors: np.ndarray


class Gallery(Protocol):
    """A local index or a collection in a vector engine."""

    name: str
    model: PinnedModel
    count: int
    version: str
    """Differs between two states whose images, labels or attributes may differ."""
    warning: str | None
    """What to know before results are trusted, in a sentence."""

    def search(
        self, queries: np.ndarray, k: int, where: str | None = None, leave_out: Collection[int] = ()
    ) -> list[list[Hit]]:
        """Find the `k` nearest images of each of `queries` (Q, D), or as many as there are."""

    def items(self, ids: Sequence[int]) -> list[Item]:
        """Look up items by id, in this order; a KeyError for an id that is not there."""

    def vectors_of(self, ids: Sequence[int]) -> np.ndarray:
        """Look up vectors (N, D) by id."""

    def sample(self, limit: int) -> Sample:
        """Draw `limit` items, always the same, or take all if there are no more."""

    def label_counts(self) -> dict[str, int]:
        """Count images per label, in the order of labels."""

    def attribute_values(self) -> dict[str, list[Value]]:
        """List the distinct values of each attribute; none for one that has too many to choose from."""

    def reopened(self) -> "Gallery | None":
        """Open it again if it has changed since it was opened; None if it is as it was, or cannot tell."""

    def notes_on(self, where: str) -> list[str]:
        """Say what a condition may miss: values of the other type, texts or numbers, and texts that no image has."""


def known_values(gallery: Gallery) -> dict[str, Collection[Value]]:
    """List the values that conditions can name: all labels, and those of attributes with few different ones."""
    labels = gallery.label_counts()
    return {**gallery.attribute_values(), **{name: labels for name, column in COLUMNS.items() if column == "label"}}


def refuse_other_model(pinned: PinnedModel, digest: str, given: str, name: str) -> None:
    """Refuse vectors of another network: distances between the two mean nothing."""
    if digest != pinned.digest:
        raise UserError(
            f"{name} holds vectors of the model {pinned.name} ({pinned.digest[:8]}), not of {given} ({digest[:8]}); "
            f"use that model (it was at {pinned.path}), or make a new index with this one."
        )


def check_queries(queries: np.ndarray, dim: int, k: int) -> np.ndarray:
    """Convert queries to float32 (Q, D); refuse them if they are of another width or not finite."""
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise UserError(f"A query must be a vector of {dim} numbers, not of shape {queries.shape}.")
    if not np.isfinite(queries).all():
        raise UserError("A query has NaN or infinite values; the picture cannot be searched with.")
    if k < 1:
        raise UserError(f"k = {k} asks for nothing; give at least 1.")
    return queries


def drawn_rows(count: int, limit: int, model: PinnedModel) -> np.ndarray:
    """Draw `limit` of `count` rows, always the same for a model, in ascending order; all if there are no more."""
    if count <= limit:
        return np.arange(count)
    random = np.random.default_rng(derive_seed(0, "sample of an index", model.digest))
    return np.sort(random.choice(count, size=limit, replace=False))


def exact_nearest(queries: np.ndarray, references: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find distances and rows (Q, min(k, N)) of the nearest of `references` (N, D); equals by lower row."""
    k = min(k, len(references))
    if k == 0:
        return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    distances, rows = nearest_references(torch.from_numpy(queries), k, torch.from_numpy(references))
    return distances.numpy(), rows.numpy()


def is_gone(path: str | Path) -> bool:
    """Tell whether nothing is at a path; what lies in a folder that may not be read is not gone."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False
