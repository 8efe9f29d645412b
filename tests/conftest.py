"""Small data sets that many tests train on, made anew in each test's own folder."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from ccp_dml.foundation import machine

pytest_plugins = [
    "support.browser",
    "support.frozen_runs",
    "support.made_up_runs",
    "support.running_server",
    "support.small_runs",
]


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Small tensors gain nothing from threads, and tests may share the machine."""
    torch.set_num_threads(1)


@pytest.fixture
def has_cores(tmp_path, monkeypatch):
    """Let this machine have any number of cores, `has_cores(8)`, whatever the container that tests run in may use."""
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "no groups")
    return lambda count: monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)


@pytest.fixture
def features(tmp_path):
    """An .npz of 16 classes with 8 vectors each: clusters in 4 of 12 dimensions, noise in the others."""
    return write_features(tmp_path / "features.npz")


def write_features(path, classes=16, per_class=8, dim=12):
    rng = np.random.default_rng(0)
    centres = np.concatenate([rng.normal(size=(classes, 4)), np.zeros((classes, dim - 4))], axis=1)
    vectors = centres.repeat(per_class, axis=0) + rng.normal(size=(classes * per_class, dim)) * (
        [0.3] * 4 + [1.5] * (dim - 4)
    )
    np.savez(path, features=vectors.astype(np.float32), labels=np.arange(classes).repeat(per_class))
    return path


@pytest.fixture
def image_folder(tmp_path):
    """16 classes of 5 small coloured images each."""
    rng = np.random.default_rng(0)
    for label in range(16):
        folder = tmp_path / "images" / f"class_{label:02}"
        folder.mkdir(parents=True)
        colour = rng.integers(0, 256, size=3)
        for number in range(5):
            pixels = np.clip(colour + rng.normal(scale=40, size=(40, 36, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "images"
