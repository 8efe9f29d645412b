"""Measure how far the first losses of two trainings drift apart that differ by rounding alone.

    python tools/rounding_drift.py

A batch of glyphs goes through the small network as a whole, or in quarters, as it does in four processes: gradients of
the weights are then summed in another order. Printed is the largest difference of the first losses, in single and in
double precision, with the network's ReLUs, whose slope jumps at zero, and with smooth SiLUs in their place.
"""

import argparse
import tempfile
from itertools import product
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn

from ccp_dml.config.layers import resolve
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.models.small_cnn import ResidualBlock
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.assembly import TrainingRun
from ccp_dml.runs.build import build_network
from ccp_dml.runs.datasets import classes_to_learn_and_to_select_on
from ccp_dml.runs.devices import build_fabric
from ccp_dml.runs.watcher import Watcher

SETTINGS = ("run.workers=0", "run.map_points=0", "run.device=cpu")
AFTER = (10, 20, 30, 50)
ACTIVATIONS = {"ReLU": torch.relu, "SiLU": nn.functional.silu}


class InParts(nn.Module):
    """Embeds a batch part by part."""

    def __init__(self, network: nn.Module, parts: int) -> None:
        super().__init__()
        self.network, self.parts = network, parts

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.network(some) for some in images.chunk(self.parts)])


def first_losses(folder: Path, method: str, precision: str, parts: int, steps: int) -> Tensor:
    config = complete(resolve(["glyphs", method], [*SETTINGS, f"run.precision={precision}"]).config)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, load_glyphs())
    network = build_network(config.model, learned, config.run.seed)
    book = Logbook.open_new(folder, config, ["drift"])
    run = TrainingRun(config, build_fabric("cpu", precision), network, learned, validation, book, Watcher())
    run.wrapped_network.train()
    run.trainer.network = InParts(run.trainer.network, parts)
    return torch.stack([run.trainer.take_step()[1] for _ in range(steps)]).double()


def drift(method: str, precision: str, activation: str, parts: int) -> Tensor:
    """Measure the difference of each of the first losses, batches whole and in `parts`."""
    function = ACTIVATIONS[activation]
    with (
        tempfile.TemporaryDirectory() as name,
        mock.patch.object(nn.ReLU, "forward", lambda _, x: function(x)),
        mock.patch.object(ResidualBlock, "forward", lambda block, x: function(x + block.branch(x))),
    ):
        one, other = (first_losses(Path(name, str(n)), method, precision, n, AFTER[-1]) for n in (1, parts))
    return (one - other).abs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=["c1", "c2", "ms"])
    parser.add_argument("--parts", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("largest difference up to step", *AFTER)
    for method, (precision, activation) in product(
        options.methods, [("32-true", "ReLU"), ("32-true", "SiLU"), ("64-true", "ReLU")]
    ):
        found = drift(method, precision, activation, options.parts)
        print(f"{method:8}{precision:9}{activation}", *(f"{float(found[:n].max()):.0e}" for n in AFTER), flush=True)


if __name__ == "__main__":
    main()
