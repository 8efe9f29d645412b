"""The embedding as a map to walk through: of one run, or of a few side by side."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ccp_dml.functional.planar import principal_plane
from ccp_dml.records.problem_map import MapPoints, ProblemMap, evenly, read_problems, shown_points
from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.reports.sections.curves import problem_rows
from ccp_dml.reports.sections.overview import Section
from ccp_dml.reports.words import picture

MOST_FRAMES = 40  # problems on the slider; of more, evenly spaced ones
SIZE = 1000  # the drawing is a square of so many units
MARGIN = 30  # units left free on each side

Coordinates = list[int]  # x0, y0, x1, y1, ...; from the top left corner


@dataclass(frozen=True)
class MapSide:
    """The images of one side; a point's label is its class's place in `classes`."""

    classes: tuple[str, ...]
    labels: list[int]
    names: list[str]
    cells: list[int | None]  # where the point's picture stands on the sheet
    sheet: dict[str, Any] | None

    def members(self, label: int) -> list[int]:
        return [place for place, own in enumerate(self.labels) if own == label]


@dataclass(frozen=True)
class Frame:
    """One problem: where the points stand, its proxies, and those that were chosen for the next problem."""

    problem: int
    points: dict[str, Coordinates]  # by side
    proxies: dict[str, Coordinates | None]  # "converged" and "selected"; class by class, equally many of each


@dataclass(frozen=True)
class EmbeddingMap:
    run: RunFolder
    sides: dict[str, MapSide]  # "train", "validation"
    frames: list[Frame]
    proxies_per_class: int  # 0: none
    dimensions: int
    share: float  # of the variance that the plane shows, 0..1


def embedding_map(run: RunFolder) -> EmbeddingMap | None:
    """Draw the maps that the run left; None where it left none.

    One pair of axes serves all problems: what moves between two of them is the embedding, not the axes. Where axes must
    be chosen, each problem is centred first: a shift of everything changes no distance, but would claim an axis.
    """
    problems = read_problems(run.path)
    if not problems:
        return None
    kept = evenly(problems, MOST_FRAMES)
    chosen = {side: shown_points(getattr(problems[0], side)) for side in ("train", "validation")}
    following = {before.problem: after for before, after in pairwise(problems)}
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
    """Everything that one frame shows, each part (n, D)."""
    parts: dict[str, Tensor | None] = {
        "train": problem.train.embeddings[chosen["train"]],
        "validation": problem.validation.embeddings[chosen["validation"]],
        "converged": problem.converged,
        "selected": None if following is None else following.selected,
    }
    return {name: part.flatten(0, -2).double() for name, part in parts.items() if part is not None}


def _centred(cloud: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything moved so that the images' mean is the origin; proxies move along."""
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
    sheet = pictures["sheet"] if pictures["sheet"] and picture(pictures["sheet"]["uri"]) else None
    return MapSide(
        classes=points.class_names,
        labels=points.labels[chosen].tolist(),
        names=[pictures["names"][cells[row]] if row in cells else f"row {row}" for row in rows],
        cells=[cells.get(row) for row in rows],
        sheet=sheet,
    )


MOST_MAPS = 3  # further runs are compared by numbers only, so that the page stays light
SIDES = {"train": "Training classes", "validation": "Validation classes"}
PROXIES = {"converged": "converged", "selected": "chosen for the next problem"}


def embedding_maps(runs: Sequence[RunFolder]) -> Section | None:
    """The maps of the first runs that left some; None where none did."""
    maps: list[dict[str, Any]] = []
    labels = run_labels(runs)
    for style, run in enumerate(runs):
        found = embedding_map(run) if len(maps) < MOST_MAPS else None
        if found is not None:
            label = labels[style] if len(runs) > 1 else None
            maps.append({"map": found, "label": label, "style": style, "data": _script_data(found)})
    if not maps:
        return None
    sheets = {
        sheet_id(side.sheet): side.sheet["uri"]
        for one in maps
        for side in one["map"].sides.values()
        if side.sheet is not None
    }
    drawn = [one["map"] for one in maps]
    content = {
        "maps": maps,
        "sheets": sheets,
        "sides": SIDES,
        "proxies": PROXIES,
        "moves": any(len(one.frames) > 1 for one in drawn),
        "has_proxies": any(one.proxies_per_class for one in drawn),
    }
    return Section("map", "Map of the embedding", "section_map.html", content)


def sheet_id(sheet: dict[str, Any]) -> str:
    """The same for the same pictures: runs on the same data share them on the page."""
    return "sheet-" + hashlib.sha256(sheet["uri"].encode()).hexdigest()[:16]


def _script_data(found: EmbeddingMap) -> dict[str, Any]:
    """What map.js needs to move points and to show images."""
    rows = {row["problem"]: row for row in problem_rows(found.run)}
    return {
        "sides": {
            name: {
                "classes": side.classes,
                "labels": side.labels,
                "names": side.names,
                "cells": side.cells,
                "sheet": side.sheet
                and {"id": sheet_id(side.sheet), "columns": side.sheet["columns"], "rows": side.sheet["rows"]},
            }
            for name, side in found.sides.items()
        },
        "frames": [
            {
                "problem": frame.problem,
                "places": {**frame.points, **frame.proxies},
                "map_at_r": rows.get(frame.problem, {}).get("map_at_r"),
                "covering_radius": rows.get(frame.problem, {}).get("covering_radius"),
            }
            for frame in found.frames
        ],
    }
