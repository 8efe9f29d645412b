"""What can be found wrong before a plan's first step: a mistake should not surface after hours, run after run."""

from collections.abc import Sequence

from ccp_dml.config import ModelConfig
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.experiments.build import build_fabric, build_network, build_objective
from ccp_dml.experiments.datasets import build_data
from ccp_dml.experiments.plan import PlannedRun
from ccp_dml.experiments.training import classes_to_learn_and_to_select_on
from ccp_dml.experiments.worker import remember_last


def rehearse(runs: Sequence[PlannedRun]) -> list[str]:
    """Put the parts of every run together without training; what the data sets have to say.

    Raises the UserError of the first run that cannot start. Weights that must be downloaded are fetched here, once.
    """
    load_data = remember_last(build_data)
    tried: set[ModelConfig] = set()
    notes: list[str] = []
    for run in runs:
        config = run.config
        build_fabric(config.run.device, config.run.precision)
        halves = load_data(config.data)
        notes += [note for note in halves.notes if note not in notes]
        learned, _ = classes_to_learn_and_to_select_on(config.protocol, halves)
        ClassBalancedBatches(learned.labels, config.train.classes_per_batch, config.train.images_per_class, 0)
        if config.model not in tried:
            build_network(config.model, learned, config.run.seed)
            tried.add(config.model)
        build_objective(config, len(learned.class_names))
    return notes
