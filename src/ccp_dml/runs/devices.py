"""Set up the device, the precision and the processes of a run, and refuse what this machine does not have."""

import inspect
import os
import warnings
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import nn

from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import PATIENCE, Processes, current, started_together
from ccp_dml.models.embedder import Embedder

DDP_ARGUMENTS = inspect.signature(nn.parallel.DistributedDataParallel).parameters
"""What torch's wrapper takes: the name of one argument changed."""


class TrueDouble(DoublePrecision):
    """Double precision to the end: Fabric's own gives embeddings back in single precision."""

    def convert_output(self, data: Any) -> Any:
        return data


def build_fabric(device: str, precision: Any) -> Fabric:
    """Set up this process on one device, in the given precision, together with the processes that it has joined."""
    processes = current()
    if started_together() != processes.count:
        raise UserError(
            f"This was started as one of {started_together()} processes, each of which would train a run of its own: "
            "`ccp train` is what trains one network over several processes; start other commands without torchrun."
        )
    refuse_missing_device(device)
    spare_search_for_gpus()
    kind, _, number = device.partition(":")
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"  # Fabric's own choice may fall on an Apple GPU
    in_precision = {"plugins": [TrueDouble()]} if precision == "64-true" else {"precision": precision}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not available on.*|.*tensorboard.*")
        if processes.count > 1:
            return fabric_of_many(processes, kind, number, in_precision)
        return Fabric(accelerator=kind, devices=[int(number)] if number else 1, **in_precision)


def spare_search_for_gpus() -> None:
    """Let torch ask its own runtime for GPUs where there are none, as it does in every step of an optimiser.

    Fabric lets it ask NVIDIA's library instead, which keeps processes forkable on machines with GPUs. On others, it
    looks for the library's file each time, which takes an eighth of the steps of a head on features.
    """
    if not torch.cuda.is_available():
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)


def refuse_missing_device(device: str) -> None:
    """Raise if `device` is none, or not on this machine."""
    kind, _, number = device.partition(":")
    if kind == "mps":
        raise UserError(
            f"run.device = {device!r}: Apple GPUs have no double precision, in which distances are computed; use cpu."
        )
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
        raise UserError(f"run.device = {device!r} is no device; use auto, cpu, cuda or cuda:N.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(
            f"run.device = {device!r}: this machine has {torch.cuda.device_count()} CUDA devices; use auto."
        )


def refuse_precision_of_gpus(device: str, precision: str) -> None:
    """Raise if a run would train in another precision than it says: Lightning takes bf16 for float16 on a CPU."""
    if precision == "16-mixed" and (device == "cpu" or (device == "auto" and not torch.cuda.is_available())):
        raise UserError("run.precision = '16-mixed' needs a GPU; use bf16-mixed, auto or 32-true on a CPU.")


def fabric_of_many(processes: Processes, kind: str, number: str, in_precision: dict[str, Any]) -> Fabric:
    """Set up this process on the device that its place on the machine gives it.

    Buffers are not broadcast in every step: frozen ones never change, and `SyncBatchNorm` keeps moving ones equal.
    """
    if number:
        raise UserError(
            f"run.device names one device, but {processes.local_count} processes train on this machine: use cuda, "
            "which gives each of them its own (CUDA_VISIBLE_DEVICES chooses among them), or cpu."
        )
    gpus = torch.cuda.device_count()
    if kind == "cuda" and gpus < processes.local_count:
        raise UserError(
            f"{processes.local_count} processes were started on this machine, which has {gpus} CUDA devices: start one "
            "process per device, or set run.device=cpu."
        )
    of_buffers = "forward_sync_buffers" if "forward_sync_buffers" in DDP_ARGUMENTS else "broadcast_buffers"
    not_per_step: dict[str, Any] = {of_buffers: False}
    plugins = [TorchElasticEnvironment(), *in_precision.pop("plugins", [])]
    fabric = Fabric(
        accelerator=kind,
        devices=processes.local_count,
        num_nodes=processes.count // processes.local_count,
        strategy=DDPStrategy(timeout=PATIENCE, **not_per_step),
        plugins=plugins,
        **in_precision,
    )
    fabric.launch()
    return fabric


def refuse_or_synchronise_batch_norm(network: Embedder, fabric: Fabric, processes: Processes) -> Embedder:
    """Let batch-norm layers that learn see the whole batch, or raise where torch cannot do that.

    Frozen ones (D14) compute the same whatever the batch. Those that learn would normalise by the statistics of a part
    of the batch in each process: another network than one process trains.
    """
    learning = [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    if processes.count == 1 or network.freeze_batch_norm or not learning:
        return network
    if fabric.device.type != "cuda":
        raise UserError(
            "The network has batch-norm layers that learn, whose statistics torch shares between processes on GPUs "
            "alone: set model.freeze_batch_norm=true, train in one process, or use GPUs."
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)
