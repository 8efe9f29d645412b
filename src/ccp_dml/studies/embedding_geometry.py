"""Measure how the classes of a data set lie under one network: scores, radii, distances, and a t-SNE of a few."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.errors import UserError, first_line
from ccp_dml.foundation.checkpoint import load_note, load_weights, save_weights
from ccp_dml.foundation.files import from_json
from ccp_dml.foundation.randomness import derive_seed, generator
from ccp_dml.functional.geometry import mean_inter_class_distance, mean_k_center_radius
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.problem_map import MapPoints
from ccp_dml.runs.illustrations.problem_recorder import draw_sample
from ccp_dml.runs.illustrations.tsne import tsne_plane
from ccp_dml.runs.scoring import embed_test

SIDES = ("seen", "unseen")
RESULT = "result"


@dataclass(frozen=True)
class Measured:
    """Classes under a network, in numbers; distances are those of normalised embeddings."""

    map_at_r: float
    precision_at_1: float
    covering_radius: float  # per class the mean over k = 1..n of the k-center radius, then the mean over classes
    inter_class_distance: float  # mean over pairs of images of different classes
    classes: int
    images: int

    @property
    def relative_radius(self) -> float | None:
        """Divide the covering radius by the distance between classes, so that the embedding's scale does not matter.

        None where all images lie in one place.
        """
        return self.covering_radius / self.inter_class_distance if self.inter_class_distance else None


@dataclass(frozen=True)
class SideGeometry:
    """One side of the data: all its classes in numbers, and images (n,) of a few of them at places (n, 2)."""

    measured: Measured
    labels: Tensor
    places: Tensor
    class_names: tuple[str, ...]

    def shown(self) -> MapPoints:
        return MapPoints(self.places, self.labels, torch.arange(len(self.labels)), self.class_names)


Geometry = dict[str, SideGeometry]  # by side


def measure(config: Config, network: Embedder, seen: LabelledSet, unseen: TestSet, points: int) -> Geometry:
    """Measure the classes that train and the classes that test under `network`; draw `points` images of each side."""
    return {
        side: measure_side(config, network, part, points)
        for side, part in zip(SIDES, (TestSet(seen), unseen), strict=True)
    }


def measure_side(config: Config, network: Embedder, part: TestSet, points: int) -> SideGeometry:
    embedded, seed = embed_test(config, network, part), config.run.seed
    sample = draw_sample(part.queries, points, generator(seed, "map"))
    shown = sample.points(embedded.queries[0][sample.rows.to(embedded.queries[0].device)])
    places = tsne_plane(shown.embeddings, derive_seed(seed, "t-SNE") % 2**32)
    return SideGeometry(measure_embedded(embedded), shown.labels, places, shown.class_names)


def measure_embedded(embedded: EmbeddedTest) -> Measured:
    """Measure one side; queries are scored against their gallery, but for the places of classes both are one set."""
    ref_embeddings, ref_labels = embedded.references or (None, None)
    scores = retrieval_scores(*embedded.queries, ref_embeddings, ref_labels)
    embeddings, labels = (torch.cat(parts) for parts in zip(*embedded.sides(), strict=True))
    radii, classes = mean_k_center_radius(embeddings, labels)
    return Measured(
        scores.map_at_r,
        scores.precision_at_1,
        float(radii.mean()),
        mean_inter_class_distance(embeddings, labels),
        len(classes),
        len(labels),
    )


def write_geometry(file: Path, geometry: Geometry, result: str) -> None:
    """Write what was measured, with the digest of the `result` of the run whose network it was."""
    tensors = {f"{side}.{name}": getattr(geometry[side], name) for side in SIDES for name in ("labels", "places")}
    note = {side: {**vars(geometry[side].measured), "class_names": geometry[side].class_names} for side in SIDES}
    save_weights(file, tensors, json.dumps({**note, RESULT: result}))


def is_measured(file: Path, result: str) -> bool:
    """Tell whether `file` holds what was measured of the run with this digest; what names no run is measured anew."""
    return file.exists() and from_json(load_note(file) or "{}").get(RESULT) == result


def read_geometry(file: Path) -> Geometry:
    """Read what was measured; raise a UserError with the remedy where the file is damaged, or another one."""
    try:
        tensors, note = load_weights(file), from_json(load_note(file) or "{}")
        return {side: _side(tensors[f"{side}.labels"], tensors[f"{side}.places"], note[side]) for side in SIDES}
    except (ValueError, KeyError) as error:  # a UserError is a ValueError
        raise UserError(
            f"{file} holds no measurements that can be read ({first_line(error)}); delete it, and repeat the study's "
            "command, which measures again."
        ) from None


def _side(labels: Tensor, places: Tensor, note: dict[str, float | Sequence[str]]) -> SideGeometry:
    values = {one.name: note[one.name] for one in fields(Measured)}
    return SideGeometry(Measured(**values), labels, places, tuple(note["class_names"]))  # type: ignore[arg-type]
