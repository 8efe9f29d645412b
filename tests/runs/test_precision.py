"""`run.precision = auto`: chosen by a stopwatch once, and kept."""

import json

import pytest
import torch
from torch import nn

from ccp_dml.config.layers import resolve
from ccp_dml.data.features import load_features
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs import precision
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.loss_arguments import complete
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

IMAGES = torch.zeros(4, 3, 8, 8)


class Backbone(nn.Module):
    """One convolution with batch norm and dropout, whose state and draws a measurement must not touch."""

    num_features = 5

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Dropout(0.5))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


class Notes(Watcher):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


def stopwatch(monkeypatch, full: float, mixed: float) -> list[str]:
    """Let passes take these times, and list the precisions of the passes in their order."""
    passes: list[str] = []

    def seconds_of_pass(fabric, *_):
        passes.append(fabric.strategy.precision.precision)
        return full if passes[-1] == "32-true" else mixed

    monkeypatch.setattr(precision, "seconds_of_pass", seconds_of_pass)
    return passes


@pytest.mark.parametrize(
    ("full", "mixed", "chosen"), [(2.0, 1.0, "bf16-mixed"), (1.0, 0.95, "32-true"), (1.0, 3.0, "32-true")]
)
def test_half_precision_must_be_clearly_faster(monkeypatch, full, mixed, chosen):
    passes = stopwatch(monkeypatch, full, mixed)
    best, reason = precision.measured_precision(Embedder(Backbone(), 2), IMAGES, "cpu")
    assert best == chosen
    assert reason == f"a pass of 4 images takes {full:.3g} s in 32-true and {mixed:.3g} s in bf16-mixed"
    assert passes == ["32-true", "bf16-mixed"] * 4


def test_measuring_leaves_network_and_random_state_as_they_were():
    network = Embedder(Backbone(), 2, freeze_batch_norm=False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    precision.measured_precision(network, torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)), "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())


def test_a_head_on_features_is_not_measured(monkeypatch):
    passes = stopwatch(monkeypatch, 2.0, 1.0)
    assert precision.measured_precision(Embedder(Backbone(), 2), torch.zeros(4, 5), "cpu")[0] == "32-true"
    assert passes == []


@pytest.mark.parametrize("asked", ["bf16-mixed", "16-mixed"])
def test_features_are_not_rounded(features, asked):
    config = resolve(["features", "c2"], [f"data.path={features}", f"run.precision={asked}"]).config
    learned = load_features(features).train
    assert precision.training_precision(config, Embedder(Backbone(), 2), learned, None, Watcher()) == "32-true"


def test_the_choice_is_told_recorded_and_kept_on_resume(image_folder, tmp_path, monkeypatch):
    settings = [f"data.root={image_folder}", "data.resize=32", "data.crop=32", "run.precision=auto", "run.workers=0"]
    quick = ["train.evaluate_every=2", "train.classes_per_batch=4", "model.backbone=small_cnn", "model.embedding_dim=4"]

    def config(steps):
        return complete(resolve(["folder", "c2"], [*settings, *quick, f"train.max_steps={steps}"]).config)

    passes = stopwatch(monkeypatch, 2.0, 1.0)
    first, second = Notes(), Notes()
    train(config(2), Logbook.open_new(tmp_path / "run", config(2), ["ccp"]), first)
    assert any(note.startswith("run.precision=auto chose bf16-mixed: a pass of") for note in first.heard)
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["precision"] == "bf16-mixed"
    assert 'precision = "auto"' in (tmp_path / "run" / "config.toml").read_text()

    measured = len(passes)
    book = Logbook.reopen(tmp_path / "run")
    used = []
    monkeypatch.setattr("ccp_dml.runs.training.build_fabric", recording(used))
    train(book.continue_with(config(4)), book, second, resume=True)
    assert used == ["bf16-mixed"]
    assert len(passes) == measured
    assert not any("run.precision" in note for note in second.heard)


def recording(used):
    def build(device, chosen):
        used.append(chosen)
        return build_fabric(device, chosen)

    return build
