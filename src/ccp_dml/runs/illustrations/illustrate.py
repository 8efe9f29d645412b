"""What a report shows of the data, written into the run's folder while data and network are at hand."""

from pathlib import Path

from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.foundation.files import write_json
from ccp_dml.records import layout
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.runs.illustrations.confusion import build_confusion
from ccp_dml.runs.illustrations.gallery import build_gallery
from ccp_dml.runs.illustrations.map_pictures import build_map_pictures


def illustrate(folder: Path, test: TestSet, embedded: EmbeddedTest, learned: LabelledSet, validation: TestSet) -> None:
    """Write gallery.json, confusion.json and, where the run left maps, map.json."""
    queries = embedded.queries[0].cpu()
    references = None if embedded.references is None else embedded.references[0]
    write_json(folder / layout.GALLERY, build_gallery(test, queries, references))
    write_json(folder / layout.CONFUSION, build_confusion(test, queries, references))
    pictures = build_map_pictures(folder, learned, validation.queries)
    if pictures is not None:
        write_json(folder / layout.MAP_PICTURES, pictures)
