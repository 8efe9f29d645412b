"""`ccp certify`: a finished run's network and data, built again and certified."""

from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.experiments.certificate import Parts, Terms, write_certificate
from ccp_dml.experiments.datasets import build_data
from ccp_dml.experiments.logbook import Logbook
from ccp_dml.experiments.scoring import load_network
from ccp_dml.experiments.training import classes_to_learn_and_to_select_on
from ccp_dml.reports.run_folder import RunFolder


def certify_run(folder: Path, terms: Terms) -> dict[str, Any]:
    """Write the certificate of the run in `folder`, in place of an earlier one; what was written."""
    run = RunFolder.read(folder)
    best = run.best_evaluation()
    if not run.finished or best is None:
        raise UserError(f"{folder} is not finished; continue it with `ccp train --resume --out {folder}` first.")
    logbook = Logbook.reopen(folder)
    config = logbook.config()
    halves = build_data(config.data)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, halves)
    network = load_network(logbook, config, halves.test)
    parts = Parts(learned, validation, halves.test)
    certificate = write_certificate(config, folder, network, parts, best["problem"], terms)
    if certificate is None:
        raise UserError(
            f"The loss {config.loss.name!r} of {folder} has no threshold of its own, and its validation images are all "
            "of one class, so that none can be chosen: give one with --beta."
        )
    return certificate
