"""Check every run of a plan before the first step: a mistake should not surface after hours, run after run."""

from collections.abc import Sequence

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import ModelConfig
from ccp_dml.plans.plan import PlannedRun, begun
from ccp_dml.reports.advice import Case, no_memory, no_proxies
from ccp_dml.runs.build import build_network, weights_note
from ccp_dml.runs.datasets import LoadData, build_data, classes_to_learn_and_to_select_on, remember_last
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.frozen import FrozenFeatures, trained_part
from ccp_dml.runs.tracking import require_logger
from ccp_dml.runs.training import refuse_untrainable
from ccp_dml.runs.watcher import Watcher


def rehearse(runs: Sequence[PlannedRun], watcher: Watcher | None = None) -> list[str]:
    """Put the parts of every run together without training; return notes.

    Raises the UserError of the first run that cannot start. Weights that must be downloaded are fetched here, once, and
    the features of frozen backbones are computed here, by the whole machine.
    """
    watcher = watcher or Watcher()
    load_data, frozen = remember_last(build_data), FrozenFeatures()
    tried: set[ModelConfig] = set()
    notes = check(runs, load_data)
    for run in runs:  # what takes long comes last
        config = run.config
        halves = load_data(config.data)
        frozen.test_inputs(config, halves.test, watcher)
        learned, _ = classes_to_learn_and_to_select_on(config.protocol, frozen.training_inputs(config, halves, watcher))
        if config.model not in tried:
            build_network(trained_part(config.model), learned, config.run.seed)
            tried.add(config.model)
    return notes


def check(runs: Sequence[PlannedRun], load_data: LoadData | None = None) -> list[str]:
    """Find out without downloads and without a pass through a network whether the runs can start; return notes.

    Raises the UserError of the first run whose data, weights, loss, device or logger is not there or does not fit.
    """
    load_data = load_data or remember_last(build_data)
    tried: set[ModelConfig] = set()
    notes: list[str] = []
    for run in runs:
        config = run.config
        require_logger(config.run.logger)
        build_fabric(config.run.device, config.run.precision_outside_training)
        halves = load_data(config.data)
        notes += [note for note in (*halves.notes, weights_note(config.model)) if note and note not in notes]
        learned, _ = classes_to_learn_and_to_select_on(config.protocol, halves)
        refuse_untrainable(config, learned)
        if config.model.weights is not None and config.model not in tried:
            build_network(config.model, halves.train, config.run.seed)
            tried.add(config.model)
    return [*notes, *runs_of_loss_alone(runs)]


def runs_of_loss_alone(runs: Sequence[PlannedRun]) -> list[str]:
    """Say which runs end before their method adds anything to its loss: comparing them would say nothing."""
    told: dict[str, list[str]] = {}
    for run in runs:
        case = Case(values_of(run.config))
        if (found := no_proxies(case) or no_memory(case)) is not None:
            text, _ = found
            told.setdefault(text, []).append(run.name)
    return [f"{first}{f' and {len(others)} more' if others else ''}: {text}" for text, (first, *others) in told.items()]


def refuse_other_data(runs: Sequence[PlannedRun]) -> None:
    """Raise if a run was begun with other data than there are now: a table would mix the two."""
    load_data = remember_last(build_data)
    for run, logbook in begun(runs):
        logbook.pin_data(load_data(run.config.data).digest)


def have_moved(runs: Sequence[PlannedRun]) -> bool:
    """Tell whether the data of a run that has begun were elsewhere than they are now."""
    places = [(logbook.config().data, run.config.data) for run, logbook in begun(runs)]
    return any((before.root, before.path) != (now.root, now.path) for before, now in places)


def refuse_other_backbones(runs: Sequence[PlannedRun]) -> None:
    """Raise if a run was begun with other weights than its frozen backbone has now: a table would mix the two."""
    frozen = FrozenFeatures()
    for run, logbook in begun(runs):
        logbook.pin_backbone(frozen.backbone_digest(run.config))
