"""One run from configuration to result: what `ccp train` does."""

import os
from typing import Any

import torch

from ccp_dml.config import Config
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import auto_workers
from ccp_dml.data.splits import fold_split
from ccp_dml.experiments.assembly import Setting, assemble, restore
from ccp_dml.experiments.build import build_fabric, build_network
from ccp_dml.experiments.datasets import build_data
from ccp_dml.experiments.logbook import Logbook
from ccp_dml.experiments.scoring import embed_test, score_embeddings
from ccp_dml.experiments.watcher import Watcher
from ccp_dml.models.embedder import Embedder
from ccp_dml.reports.gallery import build_gallery
from ccp_dml.reports.page import write_report
from ccp_dml.seeds import derive_seed


def train(config: Config, logbook: Logbook, watcher: Watcher, *, resume: bool = False) -> dict[str, Any]:
    """Train, select on validation classes, score the test half once, and write everything into the run's folder."""
    prepare_torch(config)
    halves = build_data(config.data)
    for note in halves.notes:
        watcher.note(note)
    network, facts = train_on_classes(config, halves.train, logbook, watcher, resume=resume)
    watcher.finishing()
    embedded = embed_test(config, network, halves.test)
    result = {"test": score_embeddings(embedded, config.protocol.recall_at), **facts}
    references = None if embedded.references is None else embedded.references[0]
    gallery = build_gallery(halves.test, embedded.queries[0].cpu(), references, seed=config.run.seed)
    logbook.finish(result, gallery)
    write_report([logbook.folder], logbook.folder / "report.html")
    return result


def train_on_classes(
    config: Config, classes: LabelledSet, logbook: Logbook, watcher: Watcher, *, resume: bool
) -> tuple[Embedder, dict[str, Any]]:
    """Train on the train half alone; the best network, and what there is to say about its training.

    The test half is no argument: nothing here can look at it (D27).
    """
    fabric = build_fabric(config.run.device, config.run.precision)
    part, validation = fold_split(classes, config.protocol.fold, config.protocol.folds)
    workers = config.run.workers if config.run.workers is not None else auto_workers(classes.source)
    setting = Setting(config, fabric, part, validation, workers)
    network = build_network(config.model, part, config.run.seed)
    projections, trainer = assemble(setting, network, logbook, watcher)

    state = logbook.restore(fabric.device) if resume else None
    if state is not None:
        restore(state, network, projections, trainer)
        watcher.note(f"Resuming at step {trainer.step}.")
    watcher.start(config, trainer.step)
    network.load_state_dict(projections.run())
    rows = logbook.rows()
    best_row = max(rows, key=lambda row: row["map_at_r"])  # the first of equals, as the run itself decides
    facts = {
        "validation": {key: best_row[key] for key in ("map_at_r", "precision_at_1", "r_precision", "queries")},
        "best_step": best_row["step"],
        "steps": trainer.step,
        "problems": projections.problem,
        "seed": config.run.seed,
        "seconds": round(trainer.seconds, 3),
    }
    return network, facts


def prepare_torch(config: Config) -> None:
    """Settle what torch decides globally, so that the same configuration gives the same result."""
    torch.manual_seed(derive_seed(config.run.seed, "layers that draw while they train"))
    if config.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
