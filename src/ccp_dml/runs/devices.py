"""Fit a run to its machine: the device, the precision and the processes; refuse what the machine does not have."""

import inspect
import os
import time
import warnings
from copy import deepcopy
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import gigabytes, machine_memory
from ccp_dml.foundation.process_group import PATIENCE, Processes, current, started_together
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.models.embedder import Embedder
from ccp_dml.proxies import NUMBERS_OF_A_CHUNK, classes_at_once, pool_size
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.watcher import Watcher

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


def evaluation_device(config: Config) -> torch.device:
    """Give the device on which a run's network is scored."""
    return build_fabric(config.run.device, config.run.precision_outside_training).device


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


AUTO, FULL, MIXED = "auto", "32-true", "bf16-mixed"
WORTHWHILE = 1.1
"""How many times as fast half precision must be: below that, it is noise, or not worth the lost digits."""
REPEATS = 3


def training_precision(
    config: Config, network: Embedder, learned: LabelledSet, logbook: Logbook, watcher: Watcher
) -> str:
    """Say in which precision the run trains; with `auto`, measure once and keep the choice for a resumed run.

    A head on features is computed in full precision in any case: Fabric would round the features themselves.
    """
    asked = config.run.precision
    if asked.endswith("-mixed") and learned.load(torch.arange(1)).ndim == 2:
        if config.model.backbone == IDENTITY:  # others have seen their images in that precision
            watcher.note(f"run.precision={asked} has no effect: a head on vectors trains in full precision.")
        return FULL
    if asked != AUTO:
        return asked
    if (recorded := logbook.recorded_precision()) is not None:
        return recorded
    measured = measured_precision(network, first_inputs(config, learned), config.run.device)
    precision, reason = current().same(measured)
    logbook.record_precision(precision)
    watcher.note(f"run.precision=auto chose {precision}: {reason}.")
    return precision


def first_inputs(config: Config, learned: LabelledSet) -> Tensor:
    """Make a batch (B, ...) of the run's size and shape: its first training image, repeated."""
    sample = learned.load(torch.arange(1), torch.arange(1))
    return sample.expand(config.train.batch_size, *sample.shape[1:]).contiguous()


def measured_precision(network: Embedder, inputs: Tensor, device: str) -> tuple[str, str]:
    """Time passes of a copy of `network` in full and in mixed precision; return the better one and the reason.

    The passes of both take turns, and the fastest of each counts: other work on the machine can only slow one down.
    """
    if inputs.ndim == 2:
        return FULL, "a head on features is computed in full precision in any case"
    fabrics = {precision: build_fabric(device, precision) for precision in (FULL, MIXED)}
    target = fabrics[FULL].device
    if target.type == "cuda" and not torch.cuda.is_bf16_supported():
        return FULL, f"the device {target} has no fast {MIXED}"
    inputs = inputs.to(target)
    seconds: dict[str, list[float]] = {precision: [] for precision in fabrics}
    with torch.random.fork_rng():  # dropout draws from the global state
        copies = {precision: fabric.setup(deepcopy(network)) for precision, fabric in fabrics.items()}
        for repeat in range(1 + REPEATS):  # the first, untimed, lets libraries prepare their kernels
            for precision, copy in copies.items():
                passed = seconds_of_pass(fabrics[precision], copy, inputs)
                if repeat > 0:
                    seconds[precision].append(passed)
    full, mixed = min(seconds[FULL]), min(seconds[MIXED])
    times = f"a pass of {len(inputs)} images takes {full:.3g} s in {FULL} and {mixed:.3g} s in {MIXED}"
    return (MIXED if full >= WORTHWHILE * mixed else FULL), times


def seconds_of_pass(fabric: Fabric, network: torch.nn.Module, inputs: Tensor) -> float:
    """Time one pass forward and backward; what is minimised does not matter."""
    wait(fabric.device)
    started = time.perf_counter()
    fabric.backward(network(inputs).square().sum())
    wait(fabric.device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    """Let the device finish what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


FLOAT = 4  # bytes
WORKER = 200_000_000  # bytes of a process that loads images, before it has loaded any


def memory_needs(config: Config, classes: int, processes: int = 1, on_this_machine: int = 1) -> dict[str, int]:
    """List what takes memory of this machine for certain, in bytes by the keys that decide about it.

    Activations and the network itself are left out: what is listed is far less than a run takes. Of the `processes`
    that train together, so many are `on_this_machine`.
    """
    batch, dim = config.train.batch_size, config.model.embedding_dim
    side = config.data.crop if isinstance(config.data.crop, int) else 0
    of_images = config.model.backbone != IDENTITY
    item = 3 * side**2 if of_images else 1  # a byte per colour
    needs = {
        "train.classes_per_batch x train.images_per_class": batch * item * (1 + FLOAT),
        "run.evaluation_batch": config.run.evaluation_batch * item * (1 + FLOAT) if of_images else 0,
        "run.workers": (config.run.workers or 0) * (WORKER + 2 * batch * item) if of_images else 0,
    }
    if config.ccp.has_proxies:
        ccp, is_divided = config.ccp, config.run.proxies_over_processes
        held = classes // processes if is_divided else classes  # by each process
        at_most = ccp.proxies_per_class * (2 if ccp.proxies_by_need else 1)
        of_all = 0 if config.run.proxies_on_disk else on_this_machine * held * at_most * dim
        needs["ccp.proxies_per_class"] = of_all * 4 * FLOAT  # gradient and moments, too
        needs["ccp.remembered_problems"] = of_all * (ccp.remembered_problems - 1) * FLOAT
        pool = pool_size(ccp.pool_per_class, ccp.proxies_per_class)
        if not ccp.proxies_by_need and (is_divided or processes == 1):
            held = min(held, classes_at_once(NUMBERS_OF_A_CHUNK, pool, dim, config.run.evaluation_batch))
        needs["ccp.pool_per_class"] = on_this_machine * held * pool * dim * FLOAT
    if config.xbm.enabled:
        needs["xbm.memory_batches"] = config.xbm.memory_batches * batch * dim * FLOAT
    return needs


def refuse_too_large(
    config: Config, classes: int, processes: int = 1, on_this_machine: int = 1, *, available: int | None = None
) -> None:
    """Raise if the settings need more memory than the machine has, with the sum and its largest parts."""
    available = machine_memory() if available is None else available
    needs = memory_needs(config, classes, processes, on_this_machine)
    total = sum(needs.values())
    if available is None or total <= available:
        return
    largest = sorted(needs.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{key} {gigabytes(size)}" for key, size in largest if size > total / 100)
    raise UserError(
        f"The settings need at least {gigabytes(total)} of memory, and this machine has {gigabytes(available)} "
        f"({parts}); lower them."
    )
