"""Rehearse the end of a run before training begins.

Whatever would fail after hours of training fails in the rehearsal, which does the same with an untrained network and a
few items in a folder that is thrown away.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet, Parts, TestSet
from ccp_dml.evaluation import SCORES
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.build import build_network
from ccp_dml.runs.conclusion.finish import finish_run
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.frozen import trained_part, trains_on_features
from ccp_dml.runs.scoring import embed_test

FEW_CLASSES, FEW_IMAGES = 3, 3
SHORT = 50  # steps: a run of fewer comes to its end before a rehearsal would


def is_short(config: Config) -> bool:
    """Tell whether a run ends so soon that a rehearsal of its end would save nobody's time."""
    return config.train.max_steps is not None and config.train.max_steps < SHORT


@naming_keys("data", "model")
def rehearse_end(config: Config, parts: Parts) -> None:
    """Go through the end of a run with an untrained network and a few items; raise what would be raised then.

    A head on frozen features cannot embed the test half's images: validation features stand in for them, and a few of
    the images are only loaded.
    """
    learned = few_of_test(TestSet(parts.learned)).queries
    few = Parts(learned, few_of_test(parts.validation), few_of_test(parts.test))
    if trains_on_features(config.model):
        few.test.queries.load(torch.arange(len(few.test.queries)))
        few = Parts(few.learned, few.validation, few.validation)
    own = {"run": {"workers": 0}, "model": {"head_init": "xavier"}}  # a few items are too few for a PCA
    config = config.model_copy(
        update={part: getattr(config, part).model_copy(update=changes) for part, changes in own.items()}
    )
    network = build_network(trained_part(config.model), few.learned, config.run.seed)
    network.to(build_fabric(config.run.device, config.run.precision_outside_training).device)
    scores = dict.fromkeys(SCORES, 0.0)
    row = {"step": 1, "problem": 1, **scores, "queries": 1, "loss": 0.0, "seconds": 0.0}
    facts = {"validation": {**scores, "queries": 1}, "best_step": 1, "steps": 1, "problems": 1, "seed": config.run.seed}
    with tempfile.TemporaryDirectory(prefix="ccp-rehearsal-") as scratch:
        logbook = Logbook.open_new(Path(scratch), config, ["rehearsal"])
        logbook.begin()
        logbook.record(row)
        finish_run(config, logbook, network, few, few.test, embed_test(config, network, few.test), facts)


def few_of_test(test: TestSet) -> TestSet:
    """Keep a few items of a few classes, those that queries and gallery have most items of."""
    counts = class_sizes(test.queries)
    if test.gallery is not None:
        counts = counts.minimum(class_sizes(test.gallery))
    classes = counts.argsort(descending=True, stable=True)[:FEW_CLASSES].tolist()
    return TestSet(few_of(test.queries, classes), None if test.gallery is None else few_of(test.gallery, classes))


def few_of(data: LabelledSet, classes: Sequence[int]) -> LabelledSet:
    """Keep the first few items of the given classes."""
    some = data.of_classes(classes)
    rows = torch.cat([(some.labels == c).nonzero().squeeze(1)[:FEW_IMAGES] for c in range(len(classes))])
    return LabelledSet(some.source, some.positions[rows], some.labels[rows], some.class_names)


def class_sizes(data: LabelledSet) -> Tensor:
    return torch.bincount(data.labels, minlength=len(data.class_names))
