import json
import os

import pytest
import torch
from torch import nn

from ccp_dml.config.layers import resolve
from ccp_dml.data.features import load_features
from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs import devices
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.build import build_network
from ccp_dml.runs.devices import (
    build_fabric,
    fabric_of_many,
    memory_needs,
    refuse_or_synchronise_batch_norm,
    refuse_precision_of_gpus,
    refuse_too_large,
)
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher


def several(count=2):
    processes = Processes()
    processes.count = processes.local_count = count
    return processes


def test_double_precision_is_double_to_the_end():
    fabric = build_fabric("cpu", "64-true")
    network = fabric.setup(torch.nn.Linear(3, 2))
    assert network(torch.ones(1, 3)).dtype == torch.float64
    assert fabric.strategy.precision.precision == "64-true"


def test_processes_that_would_each_train_a_run_of_their_own_are_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match="one of 4 processes, each of which would train a run of its own"):
        build_fabric("cpu", "32-true")


@pytest.mark.parametrize(
    ("kind", "number", "words"),
    [("cuda", "1", "names one device"), ("cuda", "", "which has 1 CUDA devices")],
)
def test_several_processes_need_a_device_each(monkeypatch, kind, number, words):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match=words):
        fabric_of_many(several(), kind, number, {})


def test_batch_norm_that_learns_needs_the_whole_batch():
    config = resolve(["mnist", "c2"]).config
    network = build_network(config.model, None, 0)
    fabric = build_fabric("cpu", "32-true")
    assert not network.freeze_batch_norm, "the test needs a network whose batch norm learns"
    assert refuse_or_synchronise_batch_norm(network, fabric, ALONE) is network
    with pytest.raises(UserError, match=r"model\.freeze_batch_norm=true"):
        refuse_or_synchronise_batch_norm(network, fabric, several())
    network.freeze_batch_norm = True
    assert refuse_or_synchronise_batch_norm(network, fabric, several()) is network
    network.freeze_batch_norm = False
    on_gpu = type("OnGpu", (), {"device": torch.device("cuda", 0)})()
    synchronised = refuse_or_synchronise_batch_norm(network, on_gpu, several())
    assert any(isinstance(layer, torch.nn.SyncBatchNorm) for layer in synchronised.modules())
    assert synchronised.state_dict().keys() == network.state_dict().keys()


def test_half_precision_that_only_gpus_have_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for device in ("cpu", "auto"):
        with pytest.raises(UserError, match="'16-mixed' needs a GPU; use bf16-mixed"):
            refuse_precision_of_gpus(device, "16-mixed")
        refuse_precision_of_gpus(device, "bf16-mixed")
    refuse_precision_of_gpus("cuda:0", "16-mixed")


def test_apple_gpus_are_neither_taken_nor_chosen(monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"run\.device = 'mps': Apple GPUs have no double precision.*use cpu"):
        build_fabric("mps", "32-true")
    asked = []
    monkeypatch.setattr("ccp_dml.runs.devices.Fabric", lambda accelerator, **_: asked.append(accelerator))
    build_fabric("auto", "32-true")  # Fabric's own choice, which "auto" would leave to it, looks at the system, too
    assert asked == ["cpu"]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_only_where_there_are_gpus_torch_looks_for_them_by_their_library(monkeypatch, has_gpu):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as Fabric sets it
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    build_fabric("cpu", "32-true")
    assert ("PYTORCH_NVML_BASED_CUDA_CHECK" in os.environ) == has_gpu


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

    monkeypatch.setattr(devices, "seconds_of_pass", seconds_of_pass)
    return passes


@pytest.mark.parametrize(
    ("full", "mixed", "chosen"), [(2.0, 1.0, "bf16-mixed"), (1.0, 0.95, "32-true"), (1.0, 3.0, "32-true")]
)
def test_half_precision_must_be_clearly_faster(monkeypatch, full, mixed, chosen):
    passes = stopwatch(monkeypatch, full, mixed)
    best, reason = devices.measured_precision(Embedder(Backbone(), 2), IMAGES, "cpu")
    assert best == chosen
    assert reason == f"a pass of 4 images takes {full:.3g} s in 32-true and {mixed:.3g} s in bf16-mixed"
    assert passes == ["32-true", "bf16-mixed"] * 4


def test_measuring_leaves_network_and_random_state_as_they_were():
    network = Embedder(Backbone(), 2, freeze_batch_norm=False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    devices.measured_precision(network, torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)), "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())


def test_a_head_on_features_is_not_measured(monkeypatch):
    passes = stopwatch(monkeypatch, 2.0, 1.0)
    assert devices.measured_precision(Embedder(Backbone(), 2), torch.zeros(4, 5), "cpu")[0] == "32-true"
    assert passes == []


@pytest.mark.parametrize("asked", ["bf16-mixed", "16-mixed"])
def test_features_are_not_rounded(features, asked):
    config = resolve(["features", "c2"], [f"data.path={features}", f"run.precision={asked}"]).config
    learned, watcher = load_features(features).train, Notes()
    assert devices.training_precision(config, Embedder(Backbone(), 2), learned, None, watcher) == "32-true"
    assert watcher.heard == [f"run.precision={asked} has no effect: a head on vectors trains in full precision."]


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


def config(*settings, method="c2-ccp"):
    return resolve(["glyphs", method], settings).config


def test_needs_grow_with_what_is_named():
    small, large = (memory_needs(config(f"ccp.proxies_per_class={n}"), 100) for n in (8, 8000))
    assert large["ccp.proxies_per_class"] == 1000 * small["ccp.proxies_per_class"]
    assert large["run.evaluation_batch"] == small["run.evaluation_batch"]


def test_copies_of_proxies_count():
    def needs(*settings):
        return memory_needs(config(*settings), 100)

    once = needs()["ccp.proxies_per_class"]
    assert needs("ccp.proxies_by_need=true")["ccp.proxies_per_class"] == 2 * once
    assert needs("ccp.remembered_problems=5")["ccp.remembered_problems"] == once  # four copies, where training has four


def test_representatives_take_no_memory():
    assert not any(key.startswith("ccp.") for key in memory_needs(config(method="c2-profs"), 100))


def test_too_much_is_refused_with_the_sum_and_its_parts():
    refuse_too_large(config(), 100, available=8 * 10**9)
    with pytest.raises(
        UserError, match=r"at least .* GB .* has 8\.0 GB \(ccp\.pool_per_class .* ccp\.proxies_per_class"
    ):
        refuse_too_large(config("ccp.proxies_per_class=1000000"), 100, available=8 * 10**9)
    with pytest.raises(UserError, match=r"run\.workers"):
        refuse_too_large(config("run.workers=256"), 100, available=8 * 10**9)


def test_processes_hold_proxies_each_or_share_them():
    def needs(*settings, **arguments):
        found = memory_needs(config("ccp.proxies_per_class=2", *settings), 10**6, **arguments)
        return found["ccp.proxies_per_class"], found["ccp.pool_per_class"]

    proxies, pool = needs()
    assert proxies == 10**6 * 2 * config().model.embedding_dim * 4 * 4
    assert pool <= 1 << 28, "a large pool comes in chunks"
    each, whole_pools = needs(processes=4, on_this_machine=2)
    assert each == 2 * proxies
    assert whole_pools > 10 * pool
    shared, chunks = needs("run.proxies_over_processes=true", processes=4, on_this_machine=2)
    assert shared == proxies / 2
    assert chunks == 2 * pool
    assert needs("run.proxies_on_disk=true") == (0, pool)
