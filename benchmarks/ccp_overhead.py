"""What CCP adds to a training step, the loss against proxies and the pull, against the loss on the batch alone.

Both trainings take turns, step by step, in one process: the same network, batches, optimiser and trainer, the one with
`BatchObjective`, the other with `ProxyObjective` and `ProximalPull`. Evaluations and reselections are not part of it.
"""

import torch
from lightning_fabric import Fabric
from side_by_side import Claim, compare, main
from torch import Tensor, nn

from ccp_dml.config.schema import Config
from ccp_dml.functional.retrieval import RetrievalScores
from ccp_dml.losses import ContrastiveLoss
from ccp_dml.models.backbones import create_backbone
from ccp_dml.models.embedder import Embedder
from ccp_dml.objectives import BatchObjective, ProxyObjective
from ccp_dml.projections import ProximalPull, snapshot
from ccp_dml.proxies import ClassProxies
from ccp_dml.runs.build import build_optimizer
from ccp_dml.trainer import Trainer, decaying_parameters

GOAL = 5
DIMENSIONS = 128
SCENES = {
    "EfficientNet-Lite0, 112 px, 100 classes x 8 proxies, batch 32": ("tf_efficientnet_lite0", 112, 32, 100, 8, 1.03),
    "small CNN, glyphs: 32 px, 149 classes x 8 proxies, batch 64": ("small_cnn", 32, 64, 149, 8, 1.08),
    "small CNN, 32 px, 2,250 classes x 4 proxies, batch 64": ("small_cnn", 32, 64, 2_250, 4, None),
}
"""Backbone, pixels, batch, classes, proxies per class, and the ratio that is wanted."""


class OneBatch:
    """The same batch again and again: nothing is loaded, so nothing but the step is timed."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.batch = (inputs, labels)

    def __iter__(self):
        while True:
            yield self.batch

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state: dict) -> None:
        del state


def trainer(backbone: str, batch: tuple[Tensor, Tensor], classes: int, per_class: int, *, with_ccp: bool) -> Trainer:
    generator = torch.Generator().manual_seed(0)
    network: nn.Module = Embedder(create_backbone(backbone, seed=0), DIMENSIONS, generator=generator)
    loss = ContrastiveLoss(0.2, 0.5)
    objective: nn.Module = BatchObjective(loss)
    if with_ccp:
        proxies = ClassProxies(classes, per_class, DIMENSIONS)
        proxies.place(torch.randn(classes, per_class, DIMENSIONS, generator=generator))
        objective = ProxyObjective(loss, proxies)
    pull = ProximalPull(network, 2e-4) if with_ccp else None
    if pull is not None:
        pull.move_anchor(snapshot(network))
    fabric = Fabric(accelerator="cpu", devices=1)
    network, optimizer = fabric.setup(network, build_optimizer(Config(), network, objective))
    network.train()
    return Trainer(
        fabric,
        network,
        objective,
        optimizer,
        OneBatch(*batch),
        no_scores,
        pull=pull,
        decayed=decaying_parameters(network, objective),
    )


def no_scores() -> RetrievalScores:
    raise AssertionError("nothing is evaluated here")


def measure(quick: bool) -> list[Claim]:
    claims = []
    for case, (backbone, pixels, batch, classes, per_class, goal) in SCENES.items():
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(batch, 3, pixels, pixels, generator=generator)
        labels = torch.randperm(classes, generator=generator)[: batch // 4].repeat_interleave(4)
        plain, ccp = (
            trainer(backbone, (inputs, labels), classes, per_class, with_ccp=with_ccp) for with_ccp in (False, True)
        )
        times = compare(plain.take_step, ccp.take_step, repeats=10 if quick else 40)
        claims.append(Claim("CCP's overhead", case, times, ours="C2", theirs="C2 with CCP", at_most=goal))
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
