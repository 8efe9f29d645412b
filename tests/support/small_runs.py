"""Real runs of a few steps, trained once per session, for tests of what comes after training."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from ccp_dml.config.layers import resolve
from ccp_dml.models.backbones import create_backbone
from ccp_dml.plans.messages import Failed, Share
from ccp_dml.plans.runner import Failure, LocalRunner
from ccp_dml.plans.worker import attempt
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

QUICK = (
    "model.embedding_dim=6",
    "train.max_steps=4",
    "train.evaluate_every=2",
    "train.classes_per_batch=4",
    "train.images_per_class=2",
    "run.workers=0",
    "run.map_points=20",
)
SMALL_PHOTOS = ("data.resize=36", "data.crop=32", "model.backbone=small_cnn", "run.evaluation_batch=16")


def trained(folder, recipes, settings):
    """Train a run of a few steps; its folder and its configuration."""
    config = complete(resolve(recipes, [*QUICK, *settings]).config)
    train(config, Logbook.open_new(Path(folder), config, ["test"]), Watcher())
    return Path(folder), config


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """16 classes of 5 small images, each class in a colour of its own; only to be read."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for label in range(16):
        (root / f"class_{label:02}").mkdir()
        colour = rng.integers(0, 256, size=3)
        for number in range(5):
            pixels = np.clip(colour + rng.normal(scale=40, size=(40, 36, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class_{label:02}" / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def backbone_weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "small_cnn.safetensors"
    save_file(create_backbone("small_cnn", seed=5).state_dict(), file)
    return file


@pytest.fixture(scope="session")
def make_photo_run(photos, tmp_path_factory):
    def make(*settings):
        given = [*SMALL_PHOTOS, f"data.root={photos}", *settings]
        return trained(tmp_path_factory.mktemp("runs") / "photos", ["folder", "c2"], given)

    return make


@pytest.fixture(scope="session")
def make_frozen_run(make_photo_run, backbone_weights, tmp_path_factory):
    def make(*settings):
        cache = tmp_path_factory.mktemp("cache")
        given = ("model.freeze_backbone=true", f"model.weights={backbone_weights}", f"run.cache={cache}")
        return make_photo_run(*given, "model.head_init=pca", "data.views=2", *settings)

    return make


@pytest.fixture(scope="session")
def photo_run(make_photo_run):
    """Folder and configuration of a run on `photos`; only to be read."""
    return make_photo_run()


@pytest.fixture(scope="session")
def frozen_run(make_frozen_run):
    """The same with a frozen backbone, of which the run keeps the head alone."""
    return make_frozen_run()


class Silent:
    """A parent that does not listen."""

    def send(self, message):
        pass


@pytest.fixture
def in_this_process(monkeypatch):
    """Train the runs of a plan without worker processes, whose start takes seconds each, until `undo` is called."""

    def train(self, source, most, watcher):  # noqa: ARG001
        outcomes = [(run, attempt(run, Share(1, 1, None), build_data, Silent())) for run in source]
        return [Failure(run, found.message) for run, found in outcomes if isinstance(found, Failed)]

    monkeypatch.setattr(LocalRunner, "train", train)
    return monkeypatch
