"""Train one run from configuration to result, as `ccp train` does, and measure its time and memory."""

import os
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch

from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet, Parts, TestSet
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.splits import everything_trains
from ccp_dml.errors import UserError
from ccp_dml.evaluation import SCORES
from ccp_dml.foundation.digests import tensor_digest
from ccp_dml.foundation.machine import MemoryPeak
from ccp_dml.foundation.process_group import ALONE, Processes, current
from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.models.backbones import refuse_unknown
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.assembly import TrainingRun
from ccp_dml.runs.build import build_network, build_objective, own_backbone_of, start_head, weights_note
from ccp_dml.runs.conclusion import finish_run, finish_without_test, is_short, rehearse_end
from ccp_dml.runs.conflicts import refuse_endless, refuse_staleness_without_radius
from ccp_dml.runs.datasets import LoadData, build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.devices import (
    build_fabric,
    refuse_missing_device,
    refuse_precision_of_gpus,
    refuse_too_large,
    training_precision,
)
from ccp_dml.runs.frozen import FrozenFeatures, trained_part
from ccp_dml.runs.scoring import embed_test
from ccp_dml.runs.start import outline
from ccp_dml.runs.tracking import logged
from ccp_dml.runs.watcher import Watcher


@naming_keys("data", "model", "train", "run")
def train(
    config: Config,
    logbook: Logbook,
    watcher: Watcher,
    *,
    resume: bool = False,
    load_data: LoadData = build_data,
    frozen: FrozenFeatures | None = None,
) -> dict[str, Any]:
    """Train, select on validation classes, score the test half once, and write everything into the run's folder.

    `load_data` and `frozen` let a process that trains many runs read a data set, and see it through a frozen backbone,
    once. Under torchrun, all processes that have joined call it; the first one writes and gets told how the run goes.
    """
    prepare_torch(config)
    processes = current()
    with logged(config, logbook, watcher) if processes.is_first else nullcontext(Watcher()) as told:
        result = train_and_score(config, logbook, told, resume, load_data, frozen or FrozenFeatures(), processes)
        told.finished(result)
    return result


def train_and_score(
    config: Config,
    logbook: Logbook,
    watcher: Watcher,
    resume: bool,
    load_data: LoadData,
    frozen: FrozenFeatures,
    processes: Processes,
) -> dict[str, Any]:
    with processes.first_goes_first():
        halves = load_data(config.data)
    if config.protocol.hold_out == "nothing":
        halves = everything_trains(halves)
    for note in halves.notes:
        watcher.note(note)
    shown = classes_to_learn_and_to_select_on(config.protocol, halves)
    refuse_untrainable(config, shown[0])
    about = outline(config, halves, *shown)
    logbook.outline = asdict(about)  # for advice and pages
    watcher.note(about.sentence)
    logbook.pin_data(halves.digest)
    logbook.pin_backbone(frozen.backbone_digest(config))
    with processes.first_goes_first():
        inputs = frozen.training_inputs(config, halves, watcher)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, inputs)
    parts = Parts(learned, validation, halves.test)
    has_test = len(halves.test.queries) > 0
    if has_test and not is_short(config):
        rehearse_end(config, parts, watcher)
    network, facts = train_on_classes(config, learned, validation, logbook, watcher, processes, resume=resume)
    logbook.require_ownership()
    if not has_test:
        return processes.same(finish_without_test(config, logbook, parts, facts) if processes.is_first else {})
    watcher.finishing()
    with processes.first_goes_first():
        test = frozen.test_inputs(config, halves.test, watcher)
    embedded = embed_test(config, network, test, processes)
    if not processes.is_first:
        return processes.same({})  # waits until the first one has written everything
    parts = replace(parts, test=test)
    return processes.same(finish_run(config, logbook, network, parts, halves.test, embedded, facts))


@naming_keys("train")
def refuse_untrainable(config: Config, learned: LabelledSet) -> None:
    """Raise if backbone or device is not there, or batches or loss do not fit the classes: before hours pass."""
    train, processes, classes = config.train, current(), len(learned.class_names)
    if own_backbone_of(config.model) is None:
        refuse_unknown(config.model.backbone)
    refuse_missing_device(config.run.device)
    refuse_precision_of_gpus(config.run.device, config.run.precision)
    refuse_too_large(config, classes, processes.count, processes.local_count)
    ClassBalancedBatches(learned.labels, train.classes_per_batch, train.images_per_class, 0, world_size=processes.count)
    build_objective(config, classes, processes=processes)
    refuse_staleness_without_radius(config, int(learned.labels.bincount().max()))
    if config.protocol.hold_out == "nothing":
        refuse_endless(config)


def train_on_classes(
    config: Config,
    learned: LabelledSet,
    validation: TestSet,
    logbook: Logbook,
    watcher: Watcher,
    processes: Processes = ALONE,
    *,
    resume: bool,
) -> tuple[Embedder, dict[str, Any]]:
    """Train on `learned`, select on `validation`; return the best network, and the facts for result.json.

    It gets no other data, so that nothing here can look at other classes (D27).
    """
    memory, model = MemoryPeak(), trained_part(config.model)
    network = build_network(model, learned, config.run.seed)
    if model.weights is not None:  # those of a frozen backbone are pinned, and not part of it
        logbook.pin_first_weights(tensor_digest(network.backbone.state_dict().items()))
    fabric = build_fabric(config.run.device, training_precision(config, network, learned, logbook, watcher))
    if fabric.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(fabric.device)
    if (note := weights_note(config.model)) is not None:
        watcher.note(note)
    run = TrainingRun(config, fabric, network, learned, validation, logbook, watcher, processes)

    state = logbook.last_state(fabric.device, mapped=run.divided is not None) if resume else None
    if state is not None:
        for note in logbook.notes:
            watcher.note(note)
        run.load_state_dict(state)
        watcher.note(f"Resuming at step {run.trainer.step}.")
    else:
        start_head(network, config, learned, run.workers, processes)
    if processes.same(run.trainer.step) != run.trainer.step:
        raise UserError(f"The processes find different checkpoints in {logbook.folder}; put it where all see the same.")
    if processes.is_first:
        logbook.begin(run.trainer.step)
        if run.projections.best_of_run:
            logbook.save_best(run.projections.best_of_run)  # the file may be damaged, or newer than the checkpoint
        watcher.start(config, run.trainer.step)
    run.record_start()
    run.run()
    if not processes.is_first:
        return run.network, {}
    return run.network, {**facts_of(run), "peak_memory": peak_memory(memory, fabric.device)}


def facts_of(run: TrainingRun) -> dict[str, Any]:
    """Sum up a training that has come to its end, from its log."""
    rows, start = run.logbook.rows(), run.logbook.start()
    best = max(rows, key=lambda row: row["map_at_r"])  # the first of equals, as the run itself decides
    best = rows[-1] if run.projections.keep_last else best
    return {
        "validation": {key: best[key] for key in (*SCORES, "queries")},
        "start": None if start is None else {key: start[key] for key in (*SCORES, "queries")},
        "selected_on": run.config.protocol.select_on,
        "best_step": best["step"],
        "steps": run.trainer.step,
        "problems": run.projections.problem,
        "seed": run.config.run.seed,
        "seconds": round(run.trainer.seconds, 3),
    }


def prepare_torch(config: Config) -> None:
    """Set torch's global switches, so that the same configuration gives the same result."""
    torch.manual_seed(derive_seed(config.run.seed, "layers that draw while they train"))
    torch.use_deterministic_algorithms(config.run.deterministic, warn_only=True)
    # Torch would also fill all new memory with NaN, for code that reads what it has not written: 4 % of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if config.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False


def peak_memory(memory: MemoryPeak, device: torch.device) -> dict[str, int]:
    """Read the peaks of this run's training in bytes: of this process, where the system can tell, and of a GPU."""
    process = memory.read()
    peaks = {} if process is None else {"process": process}
    if device.type == "cuda":
        peaks["device"] = torch.cuda.max_memory_allocated(device)
    return peaks
