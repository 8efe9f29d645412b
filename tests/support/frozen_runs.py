"""Runs on the features of a frozen backbone, a few steps long, and the cache that they fill."""

import json

import pytest
from safetensors.torch import save_file

from ccp_dml.config.layers import resolve
from ccp_dml.models.backbones import create_backbone
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.frozen import FrozenFeatures
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "data.resize=36",
    "data.crop=32",
    "data.views=3",
    "model.backbone=small_cnn",
    "model.embedding_dim=6",
    "model.freeze_backbone=true",
    "train.max_steps=12",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "train.images_per_class=2",
    "optim.lr=1e-2",
    "ccp.patience=1",
    "ccp.proxies_per_class=2",
    "run.evaluation_batch=16",
    "run.workers=0",
)


class Counter(Watcher):
    """Remembers how much was extracted, and breaks off where it is told to."""

    def __init__(self, breaks_at=None):
        self.seen, self.breaks_at = [], breaks_at

    def extracting(self, done, total):
        self.seen.append((done, total))
        if self.breaks_at is not None and done >= self.breaks_at:
            raise KeyboardInterrupt


def save_resnet(file, seed):
    """Write the weights of a tiny network of timm that can be cut at its stages."""
    state = create_backbone("test_resnet", seed=seed).network.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, file)


@pytest.fixture
def small_blocks(monkeypatch):
    """Extract and write sixteen images at a time, so that a few images are several blocks."""
    monkeypatch.setattr("ccp_dml.runs.frozen.BLOCK", 16)


@pytest.fixture
def frozen_weights(tmp_path):
    """Weights of a small backbone in a file of the test's own, which it may change."""
    file = tmp_path / "weights.safetensors"
    save_file(create_backbone("small_cnn", seed=5).state_dict(), file)
    return file


@pytest.fixture
def frozen_settings(small_blocks, image_folder, frozen_weights, tmp_path):  # noqa: ARG001
    """Configure a run on `image_folder` whose features are cached below the test's folder."""

    def configure(*more, method="c2-ccp"):
        given = [f"data.root={image_folder}", f"model.weights={frozen_weights}", f"run.cache={tmp_path / 'cache'}"]
        return complete(resolve(["folder", method], [*QUICK, *given, *more]).config)

    return configure


def entries(tmp_path):
    """Name the entries of the cache."""
    return sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir())


def training_features(config, watcher=None):
    """Look the training half's features up, or compute them."""
    part = build_data(config.data).train
    return FrozenFeatures().inputs_of(config, part, watcher or Watcher(), augmented=True)


def trained(config, folder):
    """Train a run; its result, and the lines of its log but for the seconds."""
    result = train(config, Logbook.open_new(folder, config, ["test"]), Watcher())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result, [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]
