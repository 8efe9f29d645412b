"""Read and write the map of a problem: the embeddings of a fixed sample of images, and the proxies, in one file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_note, load_weights, save_weights
from ccp_dml.foundation.files import from_json
from ccp_dml.records import layout

MOST_POINTS = 400  # per side: a phone can still move them, and a page with their images stays below ten megabytes


@dataclass(frozen=True)
class MapPoints:
    """Images of a few classes as the network embedded them."""

    embeddings: Tensor  # (n, D), normalised
    labels: Tensor  # (n,) int64, numbers in `class_names`: 0..C-1 of the classes on the map, not of the whole data set
    rows: Tensor  # (n,) int64, which rows of the run's training or validation set they are
    class_names: tuple[str, ...]  # (C,)


@dataclass(frozen=True)
class ProblemMap:
    """The embedding at the end of one problem, under its best weights. All maps of a run show the same images."""

    problem: int  # 1, 2, ...
    train: MapPoints
    validation: MapPoints
    selected: Tensor | None  # (C, P, D), normalised: where the proxies of the classes in `train` started
    converged: Tensor | None  # (C, P, D), likewise: where the best evaluation of the problem found them


def write_problem(folder: Path, problem: ProblemMap) -> None:
    """Write the map into the run's folder, in place of an earlier one of the same problem."""
    tensors: dict[str, Tensor] = {}
    for side, points in (("train", problem.train), ("validation", problem.validation)):
        tensors |= {f"{side}.{name}": getattr(points, name) for name in ("embeddings", "labels", "rows")}
    if problem.selected is not None and problem.converged is not None:
        tensors |= {"proxies.selected": problem.selected, "proxies.converged": problem.converged}
    names = {"train": problem.train.class_names, "validation": problem.validation.class_names}
    save_weights(layout.map_file(folder, problem.problem), tensors, json.dumps(names))


def read_problems(folder: Path) -> list[ProblemMap]:
    """Read all maps of a run, first problem first; there are none where run.map_points is 0."""
    return [read_problem(file) for file in map_files(folder)]


def map_files(folder: Path) -> list[Path]:
    """List the maps of a run, first problem first; a problem that ended before an evaluation has none."""
    return sorted((folder / layout.PROBLEM_MAPS).glob("*.safetensors"), key=lambda file: (len(file.stem), file.stem))


def map_of_earlier(folder: Path, problem: int) -> ProblemMap | None:
    """Read the first map of a run that is of an earlier problem than this one; None where there is none."""
    earlier = (file for file in map_files(folder) if file.stem.isdigit() and int(file.stem) < problem)
    first = next(earlier, None)
    return None if first is None else read_problem(first)


def evenly(problems: Sequence[ProblemMap], most: int) -> list[ProblemMap]:
    """Choose at most `most` of the problems, evenly spaced, the first and the last among them."""
    if len(problems) <= most:
        return list(problems)
    return [problems[place] for place in torch.linspace(0, len(problems) - 1, most).round().long().tolist()]


def followers(problems: Sequence[ProblemMap]) -> dict[int, ProblemMap]:
    """Find the problem right after each, by the number of the one before it.

    Problems that ended before an evaluation have no map: after such a gap, a map shows proxies that were chosen later.
    """
    return {before.problem: after for before, after in pairwise(problems) if after.problem == before.problem + 1}


def read_problem(file: Path) -> ProblemMap:
    """Read one map."""
    tensors = load_weights(file)
    try:
        names = from_json(load_note(file) or "{}")
        return ProblemMap(
            int(file.stem),
            _points("train", tensors, names),
            _points("validation", tensors, names),
            tensors.get("proxies.selected"),
            tensors.get("proxies.converged"),
        )
    except (KeyError, ValueError) as error:
        raise UserError(f"{file} is no map of a problem ({error} is missing or wrong); delete it.") from None


def _points(side: str, tensors: dict[str, Tensor], names: dict[str, list[str]]) -> MapPoints:
    embeddings, labels, rows = (tensors[f"{side}.{name}"] for name in ("embeddings", "labels", "rows"))
    return MapPoints(embeddings, labels, rows, tuple(names[side]))


def shown_points(points: MapPoints) -> Tensor:
    """Choose the points to draw (n,), class by class: all of them, or evenly spaced ones of too many."""
    by_class = points.labels.argsort(stable=True)
    if len(by_class) <= MOST_POINTS:
        return by_class
    return by_class[torch.linspace(0, len(by_class) - 1, MOST_POINTS).round().long()]
