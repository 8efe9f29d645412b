"""Say before a plan begins how long it will take, from a few measured steps of each of its methods."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import DataHalves, LabelledSet
from ccp_dml.data.loading import loader_processes
from ccp_dml.models.embedder import Embedder
from ccp_dml.plans.plan import PlannedRun, state_of
from ccp_dml.runs.build import build_network, build_network_for
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on, remember_last
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.frozen import trained_part, trains_on_features
from ccp_dml.runs.precision import FULL, seconds_of_pass

STEPS = 2
"""Steps that are timed, after one that is not; the faster one counts, as other work can only slow one down."""

STEPS_SHOWN = 1000
"""For runs that patience ends, the time of so many steps is told."""


@dataclass(frozen=True)
class Cost:
    """What a method costs on this machine, in seconds."""

    step: float
    evaluation: float
    features: float  # of a frozen backbone, which runs share and later plans find in the cache


@dataclass(frozen=True)
class Forecast:
    """How long the runs take that are left, one after the other."""

    seconds: float
    by_patience: int  # how many of them patience ends; they count with `STEPS_SHOWN` steps
    features: float  # the part of `seconds` that goes into features of frozen backbones


def forecast(runs: Sequence[PlannedRun]) -> Forecast:
    """Measure a few steps of every method that is left, and add up what its runs will take."""
    load_data = remember_last(build_data)
    costs: dict[str, Cost] = {}
    features: dict[str, float] = {}
    seconds, by_patience = 0.0, 0
    for run in runs:
        state = state_of(run.folder)
        if state.state == "done":
            continue
        method = _without_chance(run.config)
        if method not in costs:
            costs[method] = measure(run.config, load_data(run.config.data))
        cost = costs[method]
        steps = max(0, (run.steps or STEPS_SHOWN) - state.step)
        by_patience += run.steps is None
        seconds += steps * cost.step + (steps / run.config.train.evaluate_every) * cost.evaluation
        features[f"{run.config.data!r} {run.config.model.backbone}"] = cost.features
    return Forecast(seconds + sum(features.values()), by_patience, sum(features.values()))


def measure(config: Config, halves: DataHalves) -> Cost:
    """Time a few steps and a batch of evaluation, with loading, on the device of the run."""
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, halves)
    fabric = build_fabric(config.run.device, FULL)
    workers = max(1, loader_processes(config.run.workers, learned.source))
    batch = config.train.classes_per_batch * config.train.images_per_class
    model = config.model.model_copy(update={"pretrained": False, "weights": None})  # their values cost nothing
    whole = build_network(model, learned, config.run.seed)
    loading, inputs = _seconds_of_loading(learned, batch)
    whole, inputs = whole.to(fabric.device).eval(), inputs.to(fabric.device)
    if trains_on_features(config.model):
        below = whole.features if config.model.train_from is None else whole.maps
        seen = _seconds_of_seeing(below, inputs) + loading / workers
        with torch.no_grad():
            stored = below(inputs)
        if config.model.train_from is None:
            trained = build_network_for(trained_part(model), stored.shape[1], config.run.seed).to(fabric.device)
        else:
            whole.keep_what_learns()
            trained = whole
        views = 1 + (config.data.views if config.data.augment != "none" else 0)
        items = len(halves.train) * views + len(halves.test.queries)
        evaluation = _seconds_of_seeing(trained.eval(), stored) * len(validation.queries) / batch
        return Cost(_fastest_step(fabric, trained, stored), evaluation, seen * items / batch)
    seen = _seconds_of_seeing(whole, inputs) + loading / workers
    compute = _fastest_step(fabric, whole, inputs)
    is_parallel = loader_processes(config.run.workers, learned.source) > 0
    step = max(compute, loading / workers) if is_parallel else compute + loading
    return Cost(step, seen * len(validation.queries) / batch, 0.0)


def _seconds_of_loading(part: LabelledSet, batch: int) -> tuple[float, Tensor]:
    """Load a batch (B, ...) of the first images as training does, and say how long one process takes for it."""
    rows = torch.arange(batch) % len(part)
    started = time.perf_counter()
    inputs = part.load(rows, rows)
    return time.perf_counter() - started, inputs


@torch.no_grad()
def _seconds_of_seeing(network: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    network(inputs[:1])
    started = time.perf_counter()
    float(network(inputs).sum())  # which waits for the device
    return time.perf_counter() - started


def _fastest_step(fabric: Fabric, network: Embedder, inputs: Tensor) -> float:
    with torch.random.fork_rng():  # dropout draws from the global state
        copy = fabric.setup(deepcopy(network).train())
        return min([seconds_of_pass(fabric, copy, inputs) for _ in range(1 + STEPS)][1:])


def _without_chance(config: Config) -> str:
    """Describe a configuration but for its seed and fold, which change no cost."""
    tables = config.as_tables()
    tables["run"].pop("seed", None)
    tables["protocol"].pop("fold", None)
    return repr(tables)
