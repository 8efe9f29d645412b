"""`ccp certify`: a finished run's network and data, built again and certified."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.certify import Parts, Terms, write_certificate
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.frozen import FrozenFeatures
from ccp_dml.runs.scoring import load_network
from ccp_dml.runs.training import classes_to_learn_and_to_select_on
from ccp_dml.runs.watcher import Watcher


def certify_run(folder: Path, terms: Terms, watcher: Watcher, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Write the certificate of the run in `folder`, in place of an earlier one; see `Logbook.config_here`."""
    run = RunFolder.read(folder)
    best = run.best_evaluation()
    if not run.finished or best is None:
        raise UserError(f"{folder} is not finished; continue it with `ccp train --resume --out {folder}` first.")
    logbook = Logbook.reopen(folder)
    config = logbook.config_here(settings)
    frozen = FrozenFeatures()
    logbook.pin_backbone(frozen.backbone_digest(config))
    halves = build_data(config.data)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, frozen.see_halves(config, halves, watcher))
    test = frozen.see_test(config, halves.test, watcher)
    network = load_network(logbook, config, test)
    parts = Parts(learned, validation, test)
    try:
        certificate = write_certificate(config, logbook, network, parts, best["step"], terms)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror or error}); copy the run elsewhere.") from None
    if certificate is None:
        raise UserError(
            f"The loss {config.loss.name!r} of {folder} has no threshold of its own, and its validation images are all "
            "of one class, so that none can be chosen: give one with --beta."
        )
    return certificate
