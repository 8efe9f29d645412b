"""Devices, precisions and processes: what is set up, and what is refused."""

import os

import pytest
import torch

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.runs.build import build_network
from ccp_dml.runs.devices import (
    build_fabric,
    fabric_of_many,
    refuse_or_synchronise_batch_norm,
    refuse_precision_of_gpus,
)


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
