"""The end of a run: score the test half, certify, write the report and the result; and its rehearsal.

Whatever would fail after hours of training fails in the rehearsal, before it begins: the same is done with an untrained
network and a few items, in a folder that is thrown away.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import Config
from ccp_dml.data.files.images import find_broken
from ccp_dml.data.labelled import LabelledSet, Parts, TestSet
from ccp_dml.errors import UserError, listing
from ccp_dml.evaluation import SCORES
from ccp_dml.foundation.files import write_json
from ccp_dml.models.embedder import Embedder
from ccp_dml.records import layout
from ccp_dml.records.embeddings import EmbeddedTest, save_embedded
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.problem_map import MapPoints, map_files, read_problem, shown_points
from ccp_dml.reports.page import write_report_of
from ccp_dml.runs.build import build_network
from ccp_dml.runs.certify import CertificateOptions, write_certificate
from ccp_dml.runs.devices import evaluation_device
from ccp_dml.runs.frozen import trained_part
from ccp_dml.runs.illustrations.confusion import build_confusion
from ccp_dml.runs.illustrations.gallery import build_gallery
from ccp_dml.runs.illustrations.pictures import contact_sheet
from ccp_dml.runs.scoring import embed_test, score_embeddings, score_raw
from ccp_dml.runs.start import OWN_DATA
from ccp_dml.runs.watcher import Watcher


def finish_run(
    config: Config,
    logbook: Logbook,
    network: Embedder,
    parts: Parts,
    shown: TestSet,
    embedded: EmbeddedTest,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Score the best network, write everything that a finished run has, and return the result.

    `shown` is the test half with pictures to show: where a backbone is frozen, `parts` hold its features instead.
    `embedded` is that half as the network embeds it, `facts` are what training found out.
    """
    result = {
        "test": score_embeddings(embedded, config.protocol.recall_at),
        "raw": score_raw(config, parts.test, parts.learned),
        **facts,
    }
    save_embedded(logbook.folder, embedded)
    write_report_data(logbook.folder, shown, embedded)
    write_map_pictures(logbook.folder, parts)
    write_certificate(config, logbook, network, parts, embedded, facts["best_step"], CertificateOptions())
    write_classes_page_and_result(logbook, parts, result)
    return result


def finish_without_test(config: Config, logbook: Logbook, parts: Parts, facts: dict[str, Any]) -> dict[str, Any]:
    """Finish a run that no class is left to test: write page and result without a score."""
    result = {"test": None, "raw": None, **facts}
    if config.protocol.hold_out == "nothing":  # the scores in the log are of classes that train
        result |= {"validation": None, "start": None, "selected_on": "nothing"}
    write_map_pictures(logbook.folder, parts)
    write_classes_page_and_result(logbook, parts, result)
    return result


def write_classes_page_and_result(logbook: Logbook, parts: Parts, result: dict[str, Any]) -> None:
    """Write the last files of a run, the result at the very end: a folder that has it is complete."""
    sets = {"learned": parts.learned, "validation": parts.validation.queries, "test": parts.test.queries}
    write_json(logbook.folder / layout.CLASSES, {name: list(part.class_names) for name, part in sets.items()})
    write_report_of(logbook.folder, result)
    logbook.finish(result)


def write_report_data(folder: Path, test: TestSet, embedded: EmbeddedTest) -> None:
    """Write the gallery and the confusions."""
    queries = embedded.queries[0].cpu()
    references = None if embedded.references is None else embedded.references[0]
    write_json(folder / layout.GALLERY, build_gallery(test, queries, references))
    write_json(folder / layout.CONFUSION, build_confusion(test, queries, references))


def write_map_pictures(folder: Path, parts: Parts) -> None:
    """Write the pictures of the images on maps, where the run left maps."""
    pictures = build_map_pictures(folder, parts.learned, parts.validation.queries)
    if pictures is not None:
        write_json(folder / layout.MAP_PICTURES, pictures)


def build_map_pictures(folder: Path, train: LabelledSet, validation: LabelledSet) -> dict[str, Any] | None:
    """Collect names and small pictures of the images on the maps in `folder`; None where there are no maps.

    Maps know their images by row alone.
    """
    files = map_files(folder)
    if not files:
        return None
    first = read_problem(files[0])
    return {"train": _pictures(first.train, train), "validation": _pictures(first.validation, validation)}


def _pictures(points: MapPoints, items: LabelledSet) -> dict[str, Any]:
    rows = points.rows[shown_points(points)].tolist()
    positions = [int(items.positions[row]) for row in rows]
    return {
        "rows": rows,
        "names": [items.source.name(position) for position in positions],
        "sheet": contact_sheet([items.source.picture(position) for position in positions]),
    }


FEW_CLASSES, FEW_IMAGES = 3, 3
SHORT = 50  # steps: a run of fewer comes to its end before a rehearsal would


def is_short(config: Config) -> bool:
    """Tell whether a run ends so soon that a rehearsal of its end would save nobody's time."""
    return config.train.max_steps is not None and config.train.max_steps < SHORT


@naming_keys("data", "model")
def rehearse_end(config: Config, parts: Parts, watcher: Watcher) -> None:
    """Go through the end of a run with an untrained network and a few items; raise what would be raised then.

    A head on frozen features cannot embed the test half's images: validation features stand in for them, and a few of
    the images are only loaded. Where more than a head trains, for hours, all test files of one's own are read.
    """
    learned = few_of_test(TestSet(parts.learned)).queries
    few = Parts(learned, few_of_test(parts.validation), few_of_test(parts.test))
    if config.model.trains_on_features:
        few.test.queries.load(torch.arange(len(few.test.queries)))
        few = Parts(few.learned, few.validation, few.validation)
    if config.data.name in OWN_DATA and not (config.data.skip_broken or config.model.freeze_backbone):
        refuse_broken(parts.test, watcher)
    config = config.with_values(run={"workers": 0}, model={"head_init": "xavier"})  # a few items are too few for a PCA
    network = build_network(trained_part(config.model), few.learned, config.run.seed)
    network.to(evaluation_device(config))
    scores = dict.fromkeys(SCORES, 0.0)
    row = {"step": 1, "problem": 1, **scores, "queries": 1, "loss": 0.0, "seconds": 0.0}
    facts = {"validation": {**scores, "queries": 1}, "best_step": 1, "steps": 1, "problems": 1, "seed": config.run.seed}
    with tempfile.TemporaryDirectory(prefix="ccp-rehearsal-") as scratch:
        logbook = Logbook.open_new(Path(scratch), config, ["rehearsal"])
        logbook.begin()
        logbook.record(row)
        finish_run(config, logbook, network, few, few.test, embed_test(config, network, few.test), facts)


def refuse_broken(test: TestSet, watcher: Watcher) -> None:
    """Raise if image files of the test half cannot be read.

    At the end, it would be too late to leave them out: a run is not continued with other data than it began with.
    """
    paths = [side.source.paths[row] for side in test.sides() for row in side.positions.tolist()]  # type: ignore[attr-defined]
    if broken := find_broken(paths, watcher.reading_test):
        names = listing([f"{paths[index]} ({reason})" for index, reason in broken.items()])
        raise UserError(
            f"{len(broken):,} of {len(paths):,} test images cannot be read: {names}; repair or remove them, or set "
            "`skip_broken`=true to leave out such files."
        )


def few_of_test(test: TestSet) -> TestSet:
    """Keep a few items of a few classes, those that queries and gallery have most items of."""
    sizes = torch.stack([torch.bincount(side.labels, minlength=len(side.class_names)) for side in test.sides()])
    classes = sizes.amin(0).argsort(descending=True, stable=True)[:FEW_CLASSES].tolist()
    return test.changed(lambda side: few_of(side, classes))


def few_of(data: LabelledSet, classes: Sequence[int]) -> LabelledSet:
    """Keep the first few items of the given classes."""
    some = data.of_classes(classes)
    rows = torch.cat([(some.labels == c).nonzero().squeeze(1)[:FEW_IMAGES] for c in range(len(classes))])
    return LabelledSet(some.source, some.positions[rows], some.labels[rows], some.class_names)
