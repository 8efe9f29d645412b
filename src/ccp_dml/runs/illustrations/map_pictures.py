"""The images behind the points of a run's maps, as JSON that stands on its own.

Training writes it into the run's folder while the data are at hand: maps know their images by row alone.
"""

from pathlib import Path
from typing import Any

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.records import layout
from ccp_dml.records.problem_map import MapPoints, read_problem, shown_points
from ccp_dml.runs.illustrations.pictures import contact_sheet


def build_map_pictures(folder: Path, train: LabelledSet, validation: LabelledSet) -> dict[str, Any] | None:
    """Names and small pictures of the images on the maps in `folder`; None where there are no maps."""
    file = layout.map_file(folder, 1)
    if not file.is_file():
        return None
    first = read_problem(file)
    return {"train": _pictures(first.train, train), "validation": _pictures(first.validation, validation)}


def _pictures(points: MapPoints, items: LabelledSet) -> dict[str, Any]:
    rows = points.rows[shown_points(points)].tolist()
    positions = [int(items.positions[row]) for row in rows]
    return {
        "rows": rows,
        "names": [items.source.name(position) for position in positions],
        "sheet": contact_sheet([items.source.picture(position) for position in positions]),
    }
