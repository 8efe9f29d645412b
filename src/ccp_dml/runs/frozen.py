"""Train with a backbone that is frozen, or whose lower stages are: what they give is computed once.

A head is trained on features of the whole backbone (`model.freeze_backbone`), or the upper stages and a head on maps of
the lower ones (`model.train_from`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccp_dml.config.schema import Config, ModelConfig
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.loading import load_views, loader_processes
from ccp_dml.data.views import with_features
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.foundation.digests import digest, tensor_digest
from ccp_dml.foundation.randomness import seeds_of_rows
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.models.embedder import Embedder
from ccp_dml.models.stages import DTYPES, parts_below
from ccp_dml.records.feature_store import FeatureStore
from ccp_dml.reports.words import duration
from ccp_dml.runs.build import build_network
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.watcher import Watcher

BLOCK = 128
"""Rows by which an unfinished entry of the cache grows: after an interruption, extraction goes on behind them."""

MEASURED = 8
"""Images on which the time of a pass is measured."""

VIEWS_SEED = 0
"""Seed of the stored views' augmentation. It is not the run's: all repeats of a benchmark share the features."""


def trained_part(model: ModelConfig) -> ModelConfig:
    """Reduce a model to what is trained, saved and scored: the head alone if features take the place of images.

    Where maps do, the model is the same, and `build_network` leaves out what they replace.
    """
    if not model.trains_on_features or model.train_from is not None:
        return model
    nothing = {"input_mean": None, "input_std": None, "freeze_backbone": False}
    return model.without_source.model_copy(update={"backbone": IDENTITY, "args": (), "pooling": "gap", **nothing})


@dataclass
class FrozenFeatures:
    """Replaces images by features of a frozen backbone, and keeps the last backbone and its features."""

    _model: ModelConfig | None = None
    _backbone: Embedder | None = None
    _digest: str = ""
    _seen: dict[tuple[Any, ...], tuple[LabelledSet, LabelledSet]] = field(default_factory=dict)

    def inputs_of(self, config: Config, part: LabelledSet, watcher: Watcher, *, augmented: bool) -> LabelledSet:
        """Give `part` as the trained network gets it: unchanged, or as features, in several views if `augmented`."""
        if not config.model.trains_on_features:
            return part
        self.backbone_digest(config)
        views = 1 + (config.data.views if augmented and config.data.augment != "none" else 0)
        precisions = config.run.precision_outside_training, config.model.feature_precision
        asked = (id(part), views, *precisions, config.run.cache)
        if asked not in self._seen:  # the part is kept beside its features, so that no other object can get its id
            self._seen[asked] = part, with_features(part, self._features(config, part, views, watcher))
        return self._seen[asked][1]

    def training_inputs(self, config: Config, halves: DataHalves, watcher: Watcher) -> DataHalves:
        """Give the halves as training gets them; the test half changes only if it selects the best evaluation (D28)."""
        selects = config.protocol.select_on == "test"
        test = self.test_inputs(config, halves.test, watcher) if selects else halves.test
        return replace(halves, train=self.inputs_of(config, halves.train, watcher, augmented=True), test=test)

    def test_inputs(self, config: Config, test: TestSet, watcher: Watcher) -> TestSet:
        return test.changed(lambda part: self.inputs_of(config, part, watcher, augmented=False))

    def backbone_digest(self, config: Config) -> str | None:
        """Digest the frozen part of the backbone, whatever its file is called; None if nothing is frozen."""
        if not config.model.trains_on_features:
            return None
        model = config.model.model_copy(update={"head_init": "xavier", "hidden_dim": None, "embedding_dim": 1})
        if model != self._model:
            self._seen.clear()
            self._backbone, self._digest, self._model = None, "", model
            # Random weights depend on the seed, and a backbone that nobody trained should not be frozen anyway.
            if not model.has_trained_backbone:
                setting = "freeze_backbone" if model.freeze_backbone else "train_from"
                raise UserError(
                    f"model.{setting} is set, but {model.backbone} has no trained weights: set "
                    "model.weights=FILE or, with a backbone of timm, model.pretrained=true"
                )
        if not self._digest:
            self._digest = digest_of(self.backbone(config))
        return self._digest

    def backbone(self, config: Config) -> Embedder:
        if self._backbone is None:
            assert self._model is not None
            self._backbone = build_network(self._model, None, config.run.seed).eval()
        return self._backbone

    def _features(self, config: Config, part: LabelledSet, views: int, watcher: Watcher) -> np.ndarray:
        """Read features (V, N, F) or maps (V, N, C, h, w) from the cache, or compute them into it."""
        backbone, cache = self.backbone(config), config.run.cache
        store = FeatureStore(None if cache is None else Path(cache).expanduser())
        shape = (views, len(part), *row_shape(backbone, part))
        images = part.source.signature(part.positions)
        dtype = str(DTYPES[config.model.feature_precision]).removeprefix("torch.")
        made = f"{shape} {config.run.precision_outside_training} one seed per row"
        made += "" if dtype == "float16" else f" {dtype}"  # entries of earlier versions, all in half, keep their names
        key = digest(self._digest, images, made)
        found = store.read(key, shape, dtype)
        if found is None:
            stage = "" if config.model.train_from is None else f" below {config.model.train_from}"
            description = {"data": config.data.name, "backbone": config.model.backbone + stage, "images": len(part)}

            def on_waiting() -> None:
                watcher.note("Another process computes these features; waiting for it.")

            with store.writing(key, shape, {**description, "views": views}, on_waiting, dtype) as writer:
                if not writer.is_done:
                    done = writer.begin()
                    watcher.note(cost_of_features(config, backbone, part, views * (len(part) - done)))
                    for features in extract(config, backbone, part, views, done):
                        writer.write(done, features)
                        done += features.shape[1]
                        watcher.extracting(views * done, views * len(part))
                    writer.finish()
            found = store.read(key, shape, dtype)
        assert found is not None
        return found


@torch.no_grad()
def cost_of_features(config: Config, network: Embedder, part: LabelledSet, passes: int) -> str:
    """Say how many passes through a backbone are ahead, and how long they take, measured on a few images."""
    fabric = build_fabric(config.run.device, config.run.precision_outside_training)
    network.to(fabric.device)
    rows = torch.arange(min(len(part), MEASURED))
    started = time.perf_counter()
    inputs = part.load(rows, rows)
    loaded = time.perf_counter()
    with fabric.autocast():
        see = network.pooled if network.cut is None else network.maps
        float(see(inputs.to(fabric.device)).sum())  # which waits for the device
    seen = time.perf_counter()
    workers = loader_processes(config.run.workers, part.source)
    loading, seeing = loaded - started, seen - loaded
    seconds = (max(loading / workers, seeing) if workers else loading + seeing) * passes / len(rows)
    return (
        f"{passes:,} passes through {config.model.backbone}, about {duration(seconds)}; they are kept for later runs, "
        "see `ccp cache`."
    )


@torch.no_grad()
def row_shape(network: Embedder, part: LabelledSet) -> tuple[int, ...]:
    """Look up what is stored of an image: features (F,), or maps (C, h, w), whose size depends on the image's."""
    if network.cut is None:
        return (network.linear.in_features,)
    device = network.linear.weight.device
    return tuple(network.maps(part.load(torch.arange(1)).to(device)).shape[1:])


def digest_of(network: Embedder) -> str:
    """Digest everything between an image and what is stored of it: classes, weights, constants, and the pooling."""
    code = [] if (own := own_code.digest_of_class(type(network.backbone))) is None else [own]
    if network.cut is not None:
        below = dict(zip(network.cut.below, parts_below(network.backbone, network.cut), strict=True))
        tensors = [
            (f"{name} {key}", value)
            for name, part in below.items()
            for key, value in (*part.state_dict().items(), *part.named_buffers())
        ]
        return digest("below", network.cut.stage, repr(below), tensor_digest(tensors), *code)
    constants = [(f"constant {name}", value) for name, value in network.backbone.named_buffers()]
    weights = tensor_digest([*network.backbone.state_dict().items(), *constants])
    return digest(repr(network.backbone), network.pooling, weights, *code)


@torch.no_grad()
def extract(config: Config, network: Embedder, part: LabelledSet, views: int, skip: int) -> Iterator[np.ndarray]:
    """Compute features (V, B, F) or maps (V, B, C, h, w) as they are kept, a block of images at a time.

    Each image is loaded once for all of its views. The first `skip` images are left out.
    """
    fabric = build_fabric(config.run.device, config.run.precision_outside_training)
    network.to(fabric.device)
    see = network.features if network.cut is None else network.maps
    workers = loader_processes(config.run.workers, part.source)
    rows = torch.arange(skip, len(part))
    of_views = [seeds_of_rows(len(part), VIEWS_SEED, "view", view)[rows] for view in range(1, views)]
    seeds = torch.stack(of_views) if of_views else torch.empty(0, len(rows), dtype=torch.int64)
    for inputs in load_views(part, rows, seeds, max(1, BLOCK // views), workers):
        seen = []
        for batch in inputs.flatten(0, 1).split(config.run.evaluation_batch):
            with fabric.autocast():
                seen.append(see(batch.to(fabric.device)).to(DTYPES[network.feature_precision]).cpu())
        yield torch.cat(seen).unflatten(0, inputs.shape[:2]).contiguous().numpy()
