"""Write what a report shows of the data into the run's folder, while data and network are at hand.

The report then needs neither: galleries, confusions and the images on maps are JSON that needs no other file.
"""

from pathlib import Path
from typing import Any

from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.foundation.files import write_json
from ccp_dml.records import layout
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.problem_map import MapPoints, read_problem, shown_points
from ccp_dml.runs.illustrations.confusion import build_confusion
from ccp_dml.runs.illustrations.gallery import build_gallery
from ccp_dml.runs.illustrations.pictures import contact_sheet


def write_report_data(
    folder: Path, test: TestSet, embedded: EmbeddedTest, learned: LabelledSet, validation: TestSet
) -> None:
    """Write the gallery, the confusions and, where the run left maps, the pictures of the images on them."""
    queries = embedded.queries[0].cpu()
    references = None if embedded.references is None else embedded.references[0]
    write_json(folder / layout.GALLERY, build_gallery(test, queries, references))
    write_json(folder / layout.CONFUSION, build_confusion(test, queries, references))
    write_map_pictures(folder, learned, validation)


def write_map_pictures(folder: Path, learned: LabelledSet, validation: TestSet) -> None:
    """Write the pictures of the images on maps, where the run left maps."""
    pictures = build_map_pictures(folder, learned, validation.queries)
    if pictures is not None:
        write_json(folder / layout.MAP_PICTURES, pictures)


def build_map_pictures(folder: Path, train: LabelledSet, validation: LabelledSet) -> dict[str, Any] | None:
    """Collect names and small pictures of the images on the maps in `folder`; None where there are no maps.

    Maps know their images by row alone.
    """
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
