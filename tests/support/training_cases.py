"""Small trainings that tests run in several processes and in one; here, because processes import functions by name."""

import shutil
from pathlib import Path

import torch

from ccp_dml.config.layers import resolve
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.foundation.digests import tensor_digest
from ccp_dml.foundation.process_group import current
from ccp_dml.losses import pairs
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.assembly import TrainingRun
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.training import train_on_classes
from ccp_dml.runs.watcher import Watcher
from support.interruptions import StopAfter

IN_DOUBLE = (
    "run.precision=64-true",
    "run.workers=0",
    "run.map_points=0",
    "run.evaluation_batch=7",
    "train.max_steps=40",
    "train.evaluate_every=10",
    "train.classes_per_batch=4",
    "train.images_per_class=2",
    "model.embedding_dim=6",
    "optim.lr=0.003",
    "optim.clip_norm=0.5",
)
PROXIES = ("ccp.start_step=0", "ccp.patience=1", "ccp.proxies_per_class=2", "ccp.pool_per_class=3", "ccp.weight=0.1")
MEMORY = ("xbm.enabled=true", "xbm.start_step=5", "xbm.memory_batches=3")
LOSSES = ("c1", "c2", "ms", "triplet")
SELDOM = ("train.evaluate_every=20",)
CASES = {
    **{loss: (loss, SELDOM) for loss in LOSSES},
    **{f"{loss}-proxy": (f"{loss}-proxy", PROXIES) for loss in LOSSES},
    **{f"{loss}-ccp": (f"{loss}-ccp", PROXIES) for loss in LOSSES},
    **{f"{loss}-xbm": (loss, (*MEMORY, *SELDOM)) for loss in LOSSES},
    "ms-metrix": ("ms-metrix", SELDOM),
    "proxy-anchor": ("proxy-anchor", SELDOM),
    "profs": ("c2-profs", ("ccp.steps_per_problem=7", "ccp.weight=0.1", *SELDOM)),
    "pca": ("c2-ccp", (*PROXIES, "model.head_init=whitened-pca")),
}
DIVIDED = "run.proxies_over_processes=true"
BY_ROWS = ("optim.decay_proxies=false", "optim.proxies_by_rows=true", "run.proxies_on_disk=true", "run.device=cpu")
STALE = ("ccp.until=stale", "ccp.staleness=0.05", "ccp.check_every=3", "ccp.proxy_length=unit", "ccp.space=normalised")
DIVIDED_CASES = {
    **{name: CASES[name] for loss in LOSSES for name in (f"{loss}-proxy", f"{loss}-ccp")},
    "rows": ("c2-ccp", (*PROXIES, *BY_ROWS, "loss.positive_margin=0.0", "loss.negative_margin=0.1")),
    "balanced": ("c1-ccp", (*PROXIES, "ccp.pair_weight=balanced")),
    "stale": ("ms-ccp", (*PROXIES, *STALE, "ccp.remembered_problems=2", "run.map_points=40")),
}
CASES_BY_NAME = CASES | DIVIDED_CASES
ON_GLYPHS = (("c2", "64-true", 50), ("c2", "32-true", 15), ("ms", "32-true", 50))  # method, precision, steps
STOPPED_AT = 27  # between the evaluations at 20 and 30


def configured(features, case, *more):
    method, settings = CASES_BY_NAME[case]
    given = [f"data.path={features}", *IN_DOUBLE, *settings, *more]
    return complete(resolve(["features", method], given).config)


def train_case(folder, features, case, *, resume=False, stop_at=None, more=()):
    """Train one case; return the best weights as this process holds them."""
    config = configured(features, case, *more)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, build_data(config.data))
    current().wait()
    book = Logbook.reopen(folder) if resume else Logbook.open_new(folder, config, ["test"])
    watcher = StopAfter(stop_at)
    try:
        network, _ = train_on_classes(config, learned, validation, book, watcher, current(), resume=resume)
    except KeyboardInterrupt:
        return None
    return network.state_dict()


def train_all(root, features, stopped=None):
    """Train every case and the first steps on glyphs; go on with a run that others have `stopped`, or stop one."""
    root, processes = Path(root), current()
    found = {case: train_case(root / case, features, case) for case in CASES}
    if stopped is None:
        train_case(root / "stopped", features, "c2-ccp", stop_at=STOPPED_AT)
    else:
        if processes.is_first:
            shutil.copytree(stopped, root / "continued")
        processes.wait()
        found["continued"] = train_case(root / "continued", features, "c2-ccp", resume=True)
    return found, *(first_steps_on_glyphs(root, *case) for case in ON_GLYPHS)


def train_divided(root, features, stopped=None):
    """Train with proxies that the processes share; stop one run, or go on with one that others have `stopped`.

    Losses look for the proxies that count, as they do with many classes.
    """
    root, processes = Path(root), current()
    pairs._PAIRS_WORTH_A_SEARCH = {"cpu": 1, "cuda": 1}
    for case in DIVIDED_CASES:
        train_case(root / case, features, case, more=(DIVIDED,))
    if stopped is None:
        train_case(root / "stopped", features, "triplet-ccp", stop_at=STOPPED_AT, more=(DIVIDED,))
        return None
    if processes.is_first:
        shutil.copytree(stopped, root / "divided again")
        shutil.copytree(stopped, root / "whole again")
    processes.wait()
    train_case(root / "divided again", features, "triplet-ccp", resume=True, more=(DIVIDED,))
    return train_case(root / "whole again", features, "triplet-ccp", resume=True)


def first_steps_on_glyphs(root, method, precision, steps):
    """Take steps on images; return digests of the global batches, and the losses."""
    processes = current()
    settings = ["train.classes_per_batch=4", "train.images_per_class=4", "run.workers=0", "run.map_points=0"]
    settings.append(f"run.precision={precision}")
    config = complete(resolve(["glyphs", method], settings).config)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, load_glyphs(4, cache=root.parent))
    network = build_network(config.model, learned, 0)
    fabric = build_fabric("cpu", config.run.precision)
    book = Logbook.open_new(root / f"glyphs {method} {precision}", config, ["test"])
    run = TrainingRun(config, fabric, network, learned, validation, book, Watcher(), processes)
    batches = []
    for _ in range(steps):
        inputs, labels = map(processes.gather, next(run.trainer.batches))
        batches.append(tensor_digest([("inputs", inputs.contiguous()), ("labels", labels)]))
    run.trainer.batches.load_state_dict({"epoch": 0, "position": 0})
    run.wrapped_network.train()
    losses = torch.stack([run.trainer.take_step()[1] for _ in range(steps)])
    return batches, losses
