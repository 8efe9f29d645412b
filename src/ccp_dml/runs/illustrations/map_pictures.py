"""The images behind the points of a run's maps, as JSON that stands on its own.

Training writes it into the run's folder while the data are at hand: maps know their images by row alone.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.records.problem_map import MapPoints, map_file, read_problem
from ccp_dml.runs.illustrations.contact_sheet import contact_sheet

FILE = "map.json"
MOST_POINTS = 400  # per side: what a phone can move about, and a page below ten megabytes can show the images of


def build_map_pictures(folder: Path, train: LabelledSet, validation: LabelledSet) -> dict[str, Any] | None:
    """Names and small pictures of the images on the maps in `folder`; None where there are no maps."""
    file = map_file(folder, 1)
    if not file.is_file():
        return None
    first = read_problem(file)
    return {"train": _pictures(first.train, train), "validation": _pictures(first.validation, validation)}


def shown_points(points: MapPoints) -> Tensor:
    """Which of the points are drawn (n,), class by class: all of them, or evenly spaced ones of too many."""
    by_class = points.labels.argsort(stable=True)
    if len(by_class) <= MOST_POINTS:
        return by_class
    return by_class[torch.linspace(0, len(by_class) - 1, MOST_POINTS).round().long()]


def _pictures(points: MapPoints, items: LabelledSet) -> dict[str, Any]:
    rows = points.rows[shown_points(points)].tolist()
    positions = [int(items.positions[row]) for row in rows]
    return {
        "rows": rows,
        "names": [items.source.name(position) for position in positions],
        "sheet": contact_sheet([items.source.picture(position) for position in positions]),
    }
