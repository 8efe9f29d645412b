"""A gallery from above: a map of its images, and the classes that are confused most."""

import logging
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ccp_dml.functional.planar import principal_plane
from ccp_dml.runs.illustrations.tsne import tsne_plane
from ccp_dml.serving.search.gallery import Gallery, Sample

MOST_POINTS = 10_000
MOST_POINTS_OF_TSNE = 5_000
MOST_QUERIES = 5_000
MOST_COMPARISONS = 500_000_000
"""How many pairs of a query and an indexed image are compared for the confusions: some seconds of work."""
LEAST_QUERIES = 200
QUERIES_AT_ONCE = 100
LABELLED = 'label >= ""'  # an image without a label satisfies no comparison
PAIRS_SHOWN = 12


@dataclass(frozen=True)
class IndexMap:
    """Images as points in the unit square."""

    kind: str  # "t-SNE" or "PCA"
    is_final: bool  # False while a better map is being computed
    ids: list[int]
    labels: list[str | None]
    places: np.ndarray  # (N, 2), 0..1

    def as_dict(self) -> dict[str, Any]:
        classes = sorted({label for label in self.labels if label is not None})
        numbers = {label: number for number, label in enumerate(classes)}
        return {
            "kind": self.kind,
            "final": self.is_final,
            "ids": self.ids,
            "classes": classes,
            "labels": [-1 if label is None else numbers[label] for label in self.labels],
            "x": np.round(self.places[:, 0], 4).tolist(),
            "y": np.round(self.places[:, 1], 4).tolist(),
        }


class Overview:
    """Computes map and confusions once, when they are first asked for; a t-SNE takes its time in the background."""

    def __init__(self, gallery: Gallery, with_tsne: bool = True) -> None:
        self.gallery = gallery
        self.with_tsne = with_tsne
        self._lock = threading.Lock()
        self._lock_of_confusions = threading.Lock()
        self._map: IndexMap | None = None
        self._confusions: dict[str, Any] | None = None

    def map(self) -> IndexMap:
        with self._lock:
            if self._map is None:
                sample = self.gallery.sample(MOST_POINTS)
                better = self.with_tsne and 10 <= len(sample.ids) <= MOST_POINTS_OF_TSNE
                self._map = _as_map(sample, "PCA", _flat(sample.vectors), is_final=not better)
                if better:
                    arguments = (sample, self._map)
                    threading.Thread(target=self._improve, args=arguments, name="ccp-map", daemon=True).start()
            return self._map

    def _improve(self, sample: Sample, flat: IndexMap) -> None:
        try:
            places = tsne_plane(torch.from_numpy(np.ascontiguousarray(sample.vectors)), seed=0).numpy()
            found = _as_map(sample, "t-SNE", places, is_final=True)
        except Exception as error:  # whatever it is, a page is waiting for the last map
            logging.getLogger(__name__).warning("The map by t-SNE failed (%s); the one by PCA stays.", error)
            found = replace(flat, is_final=True)
        with self._lock:
            self._map = found

    def confusions(self) -> dict[str, Any]:
        with self._lock_of_confusions:
            if self._confusions is None:
                self._confusions = confused_classes(self.gallery)
            return self._confusions


def confused_classes(gallery: Gallery) -> dict[str, Any]:
    """Count how often the nearest other image is of another class, and which two classes meet most often.

    Every image (in a large gallery, every image of a sample) looks for its nearest among all images with a label.
    Images whose class has no other image are left out, as they have no right neighbour. A pair's `share` divides its
    count by the number of queries of both classes; `example` is two images that were taken for each other, in the order
    of the classes.
    """
    counts = gallery.label_counts()
    sample = gallery.sample(min(MOST_QUERIES, max(LEAST_QUERIES, MOST_COMPARISONS // max(1, gallery.count))))
    asked = [place for place, label in enumerate(sample.labels) if label is not None and counts.get(label, 0) > 1]
    where = None if sum(counts.values()) == gallery.count else LABELLED
    if not asked:
        return {"queries": 0, "right": None, "pairs": []}
    images = Counter(sample.labels[place] for place in asked)
    pairs: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], tuple[int, int]] = {}
    for start in range(0, len(asked), QUERIES_AT_ONCE):
        some = asked[start : start + QUERIES_AT_ONCE]
        for place, hits in zip(some, gallery.search(sample.vectors[some], 2, where), strict=True):
            own, label = int(sample.ids[place]), str(sample.labels[place])
            others = [hit.item for hit in hits if hit.item.id != own]  # it finds itself, too
            if others and others[0].label != label:
                (one, first), (two, second) = sorted([(label, own), (str(others[0].label), others[0].id)])
                pairs[one, two] += 1
                examples.setdefault((one, two), (first, second))
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:PAIRS_SHOWN]
    return {
        "queries": len(asked),
        "right": 1 - pairs.total() / len(asked),
        "pairs": [
            {
                "classes": list(pair),
                "times": times,
                "share": times / (images[pair[0]] + images[pair[1]]),
                "example": list(examples[pair]),
            }
            for pair, times in ranked
        ],
    }


def _as_map(sample: Sample, kind: str, places: np.ndarray, is_final: bool) -> IndexMap:
    low, high = (places.min(0), places.max(0)) if len(places) else (np.zeros(2), np.ones(2))
    spread = max(float((high - low).max(initial=0.0)), 1e-9)  # one scale for both axes
    centred = (places - (low + high) / 2) / spread + 0.5
    return IndexMap(kind, is_final, sample.ids.tolist(), sample.labels, centred)


def _flat(vectors: np.ndarray) -> np.ndarray:
    if not len(vectors):
        return np.empty((0, 2))
    points = torch.from_numpy(np.ascontiguousarray(vectors))
    return principal_plane(points).project(points).numpy()
