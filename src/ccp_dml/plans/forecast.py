"""Say before a plan begins how long it will take, from a few measured steps of each of its methods."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from lightning_fabric import Fabric
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.loading import loader_processes
from ccp_dml.models.embedder import Embedder
from ccp_dml.plans.plan import PlannedRun, state_of
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.assembly import TrainingRun
from ccp_dml.runs.build import build_network, build_network_for
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on, remember_last
from ccp_dml.runs.devices import FULL, build_fabric, wait
from ccp_dml.runs.frozen import trained_part
from ccp_dml.runs.scoring import score_embeddings
from ccp_dml.runs.watcher import Watcher

MOST_STEPS, MOST_SECONDS = 10, 1.0
"""Steps are timed, after one that is not, until there are so many of them or they have taken so long."""

MOST_SCORED = 2000
"""Scores are timed on so many embeddings: what they take grows with the square."""

STEPS_SHOWN = 1000
"""For runs that patience ends, the time of so many steps is told."""


@dataclass(frozen=True)
class Cost:
    """What a method costs on this machine, in seconds."""

    step: float
    evaluation: float
    once: float  # in each run: the evaluation before the first step, and what is embedded and scored at the end
    features: float  # of a frozen backbone, which runs share and later plans find in the cache


@dataclass(frozen=True)
class Forecast:
    """How long the runs take that are left, one after the other."""

    seconds: float
    by_patience: int  # how many of them patience ends; they count with `STEPS_SHOWN` steps
    features: float  # the part of `seconds` that goes into features of frozen backbones


def forecast(runs: Sequence[PlannedRun]) -> Forecast:
    """Measure a few steps of every method, and add up what its runs, all of which are left, will take."""
    load_data = remember_last(build_data)
    costs: dict[Config, Cost] = {}
    features: dict[str, float] = {}
    seconds, by_patience = 0.0, 0
    for run in runs:
        method = run.config.with_values(run={"seed": 0}, protocol={"fold": 0})  # which change no cost
        if method not in costs:
            costs[method] = measure(run.config, load_data(run.config.data))
        cost = costs[method]
        steps = max(0, (run.steps or STEPS_SHOWN) - state_of(run.folder).step)
        by_patience += run.steps is None
        seconds += steps * cost.step + (steps / run.config.train.evaluate_every) * cost.evaluation + cost.once
        features[f"{run.config.data!r} {run.config.model.backbone}"] = cost.features
    return Forecast(seconds + sum(features.values()), by_patience, sum(features.values()))


def measure(config: Config, halves: DataHalves) -> Cost:
    """Time a few steps of the training, a batch of evaluation and scores, on the device of the run."""
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, halves)
    fabric = build_fabric(config.run.device, FULL)
    batch = config.train.batch_size
    model = config.model.without_source  # the values of weights cost nothing
    network = build_network(model, learned, config.run.seed).to(fabric.device).eval()
    loaders = loader_processes(config.run.workers, learned.source)
    loading, inputs = _seconds_of_loading(learned, batch, augmented=True)
    plainly, _ = _seconds_of_loading(learned, batch, augmented=False)  # as evaluations do
    loading, plainly = loading / max(1, loaders), plainly / max(1, loaders)
    features = 0.0
    if config.model.trains_on_features:
        below = network.features if config.model.train_from is None else network.maps
        views = 1 + (config.data.views if config.data.augment != "none" else 0)
        images = len(halves.train) * views + sum(map(len, halves.test.sides()))
        features = (_seconds_of_seeing(below, inputs.to(fabric.device)) + loading) * images / batch
        with torch.no_grad():
            inputs = below(inputs.to(fabric.device)).cpu()
        if config.model.train_from is None:
            network = build_network_for(trained_part(model), inputs.shape[1], config.run.seed).to(fabric.device)
        else:
            network.keep_what_learns()
    stands_in = features > 0 or loaders > 0  # what is not there yet, or is loaded meanwhile by other processes
    seen = _seconds_of_seeing(network.eval(), inputs.to(fabric.device)) + (0.0 if features else plainly)

    def scored(part: TestSet) -> float:
        """Say how long it takes to embed a set and to score it."""
        scoring = _seconds_of_scoring(part.sides(), config.model.embedding_dim, fabric.device)
        return seen * sum(map(len, part.sides())) / batch + scoring

    evaluation = scored(validation)
    trained_on = _with_items(learned, inputs) if stands_in else learned
    step = _seconds_of_step(config.model_copy(update={"model": model}), fabric, network, trained_on, validation)
    certified = seen * (len(learned) + len(validation.queries)) / batch
    return Cost(
        step=max(step, loading) if stands_in and not features else step,
        evaluation=evaluation,
        once=evaluation + 2 * scored(halves.test) + certified,  # of the test half, what training had to beat, too
        features=features,
    )


def _seconds_of_loading(part: LabelledSet, batch: int, *, augmented: bool) -> tuple[float, Tensor]:
    """Load a batch (B, ...) of the first images, and say how long one process takes for it."""
    rows = torch.arange(batch) % len(part)
    part.load(rows[:1], rows[:1] if augmented else None)
    started = time.perf_counter()
    inputs = part.load(rows, rows if augmented else None)
    return time.perf_counter() - started, inputs


def _with_items(part: LabelledSet, items: Tensor) -> LabelledSet:
    """Let a few `items` (n, ...) in memory stand in for those of a set, so that nothing is to be loaded."""
    return LabelledSet(FeatureRows(items), torch.arange(len(part)) % len(items), part.labels, part.class_names)


@torch.no_grad()
def _seconds_of_seeing(network: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    network(inputs)  # the first time, libraries prepare their kernels
    started = time.perf_counter()
    float(network(inputs).sum())  # which waits for the device
    return time.perf_counter() - started


def _seconds_of_scoring(sides: Sequence[LabelledSet], dim: int, device: torch.device) -> float:
    """Time scores of a few embeddings, and say how long they would take for the queries against their gallery."""
    queries, references = len(sides[0]), len(sides[-1])
    few = min(queries, MOST_SCORED)
    embeddings = torch.rand(few, dim, generator=torch.Generator().manual_seed(0)).to(device)
    labels = torch.arange(few, device=device) // 2
    score_embeddings(EmbeddedTest((embeddings[:4], labels[:4]), None), recall_at=[1])
    started = time.perf_counter()
    score_embeddings(EmbeddedTest((embeddings, labels), None), recall_at=[1])
    return (time.perf_counter() - started) * (queries / few) * (references / few)


def _seconds_of_step(
    config: Config, fabric: Fabric, network: Embedder, learned: LabelledSet, validation: TestSet
) -> float:
    """Time whole steps of the real training: batch, passes, loss, proxies, optimiser."""
    plain = {"precision": FULL, "workers": 0, "compile": False, "proxies_on_disk": False, "map_points": 0}
    config = config.with_values(run=plain)
    with torch.random.fork_rng():  # dropout draws from the global state
        nowhere = Logbook(Path("forecast"))  # nothing is written
        training = TrainingRun(config, fabric, network, learned, validation, nowhere, Watcher())
        _place_proxies(training)
        network.train()
        training.trainer.take_step()
        seconds: list[float] = []
        while len(seconds) < MOST_STEPS and sum(seconds) < MOST_SECONDS:
            wait(fabric.device)
            started = time.perf_counter()
            training.trainer.take_step()
            wait(fabric.device)
            seconds.append(time.perf_counter() - started)
        return median(seconds)


def _place_proxies(training: TrainingRun) -> None:
    """Put proxies anywhere, if there are any: most of a training has them, and to choose them would take too long."""
    if (proxies := training.proxies) is None:
        return
    vectors = torch.rand(proxies.vectors.shape, generator=torch.Generator().manual_seed(0)).to(proxies.vectors)
    counts = torch.full((proxies.classes,), proxies.per_class, device=vectors.device)
    proxies.place(vectors, None if proxies.slots is None else counts)
