"""Choose the precision of training by measurement, for `run.precision = auto`."""

import time
from copy import deepcopy

import torch
from lightning_fabric import Fabric
from torch import Tensor

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.foundation.process_group import current
from ccp_dml.models.embedder import Embedder
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.watcher import Watcher

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
    batch = config.train.classes_per_batch * config.train.images_per_class
    sample = learned.load(torch.arange(1), torch.arange(1))
    return sample.expand(batch, *sample.shape[1:]).contiguous()


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
