"""Lay the maps of a run out in one plane, so that pages only have to draw them.

One pair of axes serves all problems of a run: what moves between two of them is the embedding, not the axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ccp_dml.functional.planar import principal_plane
from ccp_dml.records.problem_map import MapPoints, ProblemMap, evenly, followers, read_problems, shown_points
from ccp_dml.records.run_folder import RunFolder, embedded_picture

MOST_FRAMES = 40  # problems on the slider; of more, evenly spaced ones
SIZE = 1000  # the drawing is a square of so many units
MARGIN = 30  # units left free on each side

UNIT_BALL = (-1.05, 1.05)
"""Where normalised embeddings of two dimensions lie, with a margin."""

Coordinates = list[int]  # x0, y0, x1, y1, ...; from the top left corner


@dataclass(frozen=True)
class MapSide:
    """The images of one side, training or validation; a point's label is its class's place in `classes`."""

    classes: tuple[str, ...]
    labels: list[int]
    names: list[str]
    cells: list[int | None]  # where the point's picture stands on the sheet
    sheet: dict[str, Any] | None

    def members(self, label: int) -> list[int]:
        """List the points of a class."""
        return [place for place, own in enumerate(self.labels) if own == label]


@dataclass(frozen=True)
class Frame:
    """One problem: where its points and proxies stand, and the proxies that were chosen for the next problem."""

    problem: int
    points: dict[str, Coordinates]  # by side
    proxies: dict[str, Coordinates | None]  # "converged" and "selected"; class by class, equally many of each


@dataclass(frozen=True)
class EmbeddingMap:
    """All problems of a run in one plane."""

    run: RunFolder
    sides: dict[str, MapSide]  # "train", "validation"
    frames: list[Frame]
    proxies_per_class: int  # 0: none
    dimensions: int
    share: float  # of the variance that the plane shows, 0..1


def embedding_map(run: RunFolder) -> EmbeddingMap | None:
    """Lay out the maps that the run left; None where it left none.

    Embeddings of more than two dimensions are centred problem by problem before the axes are chosen: a shift of
    everything changes no distance, but would claim an axis.
    """
    problems = read_problems(run.path)
    if not problems:
        return None
    kept = evenly(problems, MOST_FRAMES)
    chosen = {side: shown_points(getattr(problems[0], side)) for side in ("train", "validation")}
    following = followers(problems)
    clouds = [_cloud(problem, following.get(problem.problem), chosen) for problem in kept]
    dimensions = problems[0].train.embeddings.shape[1]
    if dimensions > 2:
        clouds = [_centred(cloud) for cloud in clouds]
    plane = principal_plane(torch.cat([part for cloud in clouds for part in cloud.values()]))
    flat = [{name: plane.project(part) for name, part in cloud.items()} for cloud in clouds]
    extent = torch.cat([part for cloud in flat for part in cloud.values()])
    low, high = extent.amin(0), extent.amax(0)
    return EmbeddingMap(
        run=run,
        sides={side: _side(run, side, getattr(problems[0], side), chosen[side]) for side in chosen},
        frames=[_frame(problem, cloud, low, high) for problem, cloud in zip(kept, flat, strict=True)],
        proxies_per_class=max(0 if one.converged is None else one.converged.shape[1] for one in kept),
        dimensions=dimensions,
        share=plane.share,
    )


def _cloud(problem: ProblemMap, following: ProblemMap | None, chosen: dict[str, Tensor]) -> dict[str, Tensor]:
    """Collect everything that one frame shows, each part (n, D)."""
    parts: dict[str, Tensor | None] = {
        "train": problem.train.embeddings[chosen["train"]],
        "validation": problem.validation.embeddings[chosen["validation"]],
        "converged": problem.converged,
        "selected": None if following is None else following.selected,
    }
    return {name: part.flatten(0, -2).double() for name, part in parts.items() if part is not None}


def _centred(cloud: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move everything so that the mean of the images is the origin."""
    mean = torch.cat([cloud["train"], cloud["validation"]]).mean(0)
    return {name: part - mean for name, part in cloud.items()}


def _frame(problem: ProblemMap, cloud: dict[str, Tensor], low: Tensor, high: Tensor) -> Frame:
    scale = (SIZE - 2 * MARGIN) / max(float((high - low).max()), 1e-12)  # the same both ways: distances stay true
    middle = (low + high) / 2

    def placed(part: Tensor) -> Coordinates:
        on_page = (part - middle) * scale * torch.tensor([1, -1]) + SIZE / 2  # y grows downwards
        return on_page.round().long().flatten().tolist()

    return Frame(
        problem.problem,
        {side: placed(cloud[side]) for side in ("train", "validation")},
        {kind: placed(cloud[kind]) if kind in cloud else None for kind in ("converged", "selected")},
    )


def _side(run: RunFolder, side: str, points: MapPoints, chosen: Tensor) -> MapSide:
    rows = points.rows[chosen].tolist()
    pictures = (run.map_pictures or {}).get(side) or {"rows": [], "names": [], "sheet": None}
    cells = {row: cell for cell, row in enumerate(pictures["rows"])}
    sheet = pictures["sheet"] if pictures["sheet"] and embedded_picture(pictures["sheet"]["uri"]) else None
    return MapSide(
        classes=points.class_names,
        labels=points.labels[chosen].tolist(),
        names=[pictures["names"][cells[row]] if row in cells else f"row {row}" for row in rows],
        cells=[cells.get(row) for row in rows],
        sheet=sheet,
    )


@dataclass(frozen=True)
class PlanarProblem:
    """The training images and proxies of one problem in a plane."""

    images: MapPoints  # with places (n, 2) for embeddings
    converged: Tensor | None  # (C, P, 2)
    following: Tensor | None  # (C, P, 2), chosen for the next problem; None where there is none


def planar_problems(
    problems: Sequence[ProblemMap], following: Sequence[ProblemMap | None]
) -> tuple[list[PlanarProblem], tuple[float, float]]:
    """Project problems onto one plane; also tell the limits of both axes that hold everything.

    `following` are the problems whose proxies were chosen next, None where there is none.
    """
    fitted = [part for problem in problems for part in (problem.train.embeddings, problem.converged)]
    plane = principal_plane(torch.cat([part.flatten(0, -2) for part in fitted if part is not None]))

    def project(part: Tensor | None) -> Tensor | None:
        return None if part is None else plane.project(part)

    flat = []
    for problem, after in zip(problems, following, strict=True):
        images = problem.train
        places = MapPoints(plane.project(images.embeddings), images.labels, images.rows, images.class_names)
        flat.append(PlanarProblem(places, project(problem.converged), project(after.selected if after else None)))
    if len(plane.axes) <= 2:
        return flat, UNIT_BALL
    parts = [part for one in flat for part in (one.images.embeddings, one.converged, one.following) if part is not None]
    reach = 1.05 * max(float(part.abs().max()) for part in parts)
    return flat, (-reach, reach)
