"""Choose the images that the maps of a run show, and write the map of each problem that has ended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.projections import IterativeProjections, snapshot
from ccp_dml.records.problem_map import MapPoints, ProblemMap, map_of_earlier, write_problem

MOST_CLASSES = 12
"""Classes on a map at most: nobody can tell more colours apart."""

FEWEST_IMAGES = 4
"""Images of a class at least: a small map shows fewer classes instead."""


@dataclass(frozen=True)
class MapSample:
    """The images of one side of a map: all or equally many of a few classes."""

    data: LabelledSet
    classes: Tensor  # (C,) labels in `data`, ascending
    rows: Tensor  # (n,) rows of `data`, ascending

    def points(self, embeddings: Tensor) -> MapPoints:
        """Make points of the sample's `embeddings` (n, D), with labels 0..C-1 of the sample's own classes."""
        labels = torch.searchsorted(self.classes, self.data.labels[self.rows])
        return MapPoints(embeddings, labels, self.rows, tuple(self.data.class_names[c] for c in self.classes.tolist()))


def draw_sample(data: LabelledSet, size: int, draw: torch.Generator) -> MapSample:
    """Draw at most `size` images of at most MOST_CLASSES classes, equally many of each class that has so many."""
    present = data.labels.unique()
    wanted = min(len(present), MOST_CLASSES, max(1, size // FEWEST_IMAGES))
    classes = present[torch.randperm(len(present), generator=draw)[:wanted]].sort().values
    shuffled = torch.randperm(len(data), generator=draw)
    rows = [shuffled[data.labels[shuffled] == label][: size // wanted] for label in classes]
    return MapSample(data, classes, torch.cat(rows).sort().values)


def sample_of(data: LabelledSet, rows: Tensor) -> MapSample:
    """Make the sample of an earlier map, whose `rows` (n,) of `data` are ascending."""
    return MapSample(data, data.labels[rows].unique(), rows)


class ProblemRecorder:
    """Writes the map of a problem into the run's folder: embeddings and proxies of its best evaluation.

    All maps of a run show the same images: where it left maps before it was interrupted, the images of those, however
    many are asked for now.

    Args:
        config: gives the seed and size of the sample.
        folder: the run's.
        train, validation: what the maps show images of.
        embed_rows: gives normalised embeddings (n, D) of rows (n,) of a set under the network's current weights.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        train: LabelledSet,
        validation: LabelledSet,
        embed_rows: Callable[[LabelledSet, Tensor], Tensor],
    ) -> None:
        self.folder, self.embed_rows = folder, embed_rows
        # One stream for both: where images are held out and not classes, both sides show the same classes.
        self.train, self.validation = (
            draw_sample(data, config.run.map_points, generator(config.run.seed, "map")) for data in (train, validation)
        )
        self._is_settled = False  # whether it is known which images earlier maps show

    def proxies(self, projections: IterativeProjections) -> tuple[Tensor | None, Tensor | None]:
        """Look up the proxies (c, P, D) of the classes on the map, as they were selected and as they converged.

        Processes that share the proxies have to ask together.
        """
        self._keep_to_earlier_maps(projections.problem)
        tables = (projections.selected_proxies, projections.best_proxies_of_problem)
        selected, converged = (None if table is None else self._of_classes(projections, table) for table in tables)
        return selected, converged

    def _keep_to_earlier_maps(self, problem: int) -> None:
        """Show the images of the maps of problems before this one, if there are any."""
        earlier = None if self._is_settled else map_of_earlier(self.folder, problem)
        self._is_settled = True
        if earlier is not None:
            self.train = sample_of(self.train.data, earlier.train.rows)
            self.validation = sample_of(self.validation.data, earlier.validation.rows)

    def _of_classes(self, projections: IterativeProjections, table: Tensor) -> Tensor:
        assert projections.proxies is not None
        room, classes = table.shape[1], self.train.classes.to(table.device)
        positions = classes.unsqueeze(1) * room + torch.arange(room, device=table.device)
        found = projections.proxies.look_up(table, positions.flatten()).unflatten(0, positions.shape)
        return NORMALISERS[projections.proxies.normalise](found)

    def record(self, projections: IterativeProjections, selected: Tensor | None, converged: Tensor | None) -> None:
        """Write the map of the problem that `projections` has just solved; its network keeps its weights."""
        current = snapshot(projections.network)
        projections.network.load_state_dict(projections.best_of_problem)
        train, validation = (
            sample.points(self.embed_rows(sample.data, sample.rows)) for sample in (self.train, self.validation)
        )
        projections.network.load_state_dict(current)
        write_problem(self.folder, ProblemMap(projections.problem, train, validation, selected, converged))
