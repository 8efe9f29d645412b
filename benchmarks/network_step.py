"""What layout, mixed precision, torch.compile and batch-norm folded into convolutions do to networks.

The first table times a pass forward and backward as in training, once with the colours of a pixel side by side
(channels-last) and once colour by colour. Networks of timm are laid out channels-last. BN-Inception is not: its last
digits would change, and with them the features that caches hold already. The small CNN of the glyphs gains nothing by
it. Another table times a pass without gradients; folding is not used, as it saves no time and changes last digits,
too. `run.precision=auto` measures mixed precision on the machine of a run, and says what it chose: it must not be
slower than full precision. `run.compile=true` lets torch.compile translate the backbone, and pays off after
minutes at the earliest.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
from side_by_side import Claim, compare, main
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

from ccp_dml.models.backbones import create_backbone
from ccp_dml.models.embedder import Embedder, freeze_batch_norm
from ccp_dml.runs.devices import FULL, MIXED, build_fabric, measured_precision

GOAL = 8
BACKBONES = {
    "EfficientNet-Lite0, 112 px, batch 16": ("tf_efficientnet_lite0", 112, 16),
    "BN-Inception, 227 px, batch 4": ("bn_inception", 227, 4),
}


class InLayout(nn.Module):
    """A backbone whose weights and inputs are laid out in memory as told."""

    def __init__(self, backbone: nn.Module, layout: torch.memory_format) -> None:
        super().__init__()
        self.backbone, self.layout = backbone.to(memory_format=layout), layout
        if hasattr(backbone, "memory_format"):
            backbone.memory_format = layout

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> feature maps (B, F, h, w)."""
        return self.backbone(images.contiguous(memory_format=self.layout))


def training_pass(network: nn.Module, images: Tensor) -> Callable[[], None]:
    def run() -> None:
        network.zero_grad()
        network(images).square().sum().backward()

    return run


def inference(network: nn.Module, images: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.no_grad():
            return network(images)

    return run


def precision_claims(name: str, pixels: int, batch: int, repeats: int) -> list[Claim]:
    """Time mixed precision, and what `run.precision=auto` chooses, against full precision."""
    network = Embedder(create_backbone(name, seed=0), 128)
    images = torch.randint(0, 256, (batch, 3, pixels, pixels), generator=torch.Generator().manual_seed(0))
    images = images.to(torch.uint8)
    chosen, reason = measured_precision(network, images, "cpu")

    def passes(precision: str) -> Callable[[], None]:
        fabric = build_fabric("cpu", precision)
        copy = fabric.setup(deepcopy(network))
        return lambda: fabric.backward(copy(images).square().sum())

    case = f"{name}, {pixels} px, batch {batch}"
    mixed = compare(passes(MIXED), passes(FULL), repeats)
    picked = mixed if chosen == MIXED else [(full, full) for _, full in mixed]
    note = f"run.precision=auto chose {chosen}: {reason}."
    return [
        Claim("Mixed precision, forward + backward", case, mixed, ours=MIXED, theirs=FULL),
        Claim("run.precision=auto", case, picked, ours=f"auto ({chosen})", theirs=FULL, at_least=1.0, note=note),
    ]


def compile_claim(repeats: int) -> Claim:
    """Time the small CNN of the glyphs as it is and translated."""
    network = create_backbone("small_cnn", seed=0)
    translated = deepcopy(network)
    translated.compile()
    images = torch.randint(0, 256, (64, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    times = compare(training_pass(translated, images), training_pass(network, images), repeats, calls=5)
    case = "small CNN, 32 px, batch 64"
    return Claim("torch.compile, forward + backward", case, times, ours="compiled", theirs="as it is")


def measure(quick: bool) -> list[Claim]:
    repeats = 1 if quick else 4
    claims = []
    generator = torch.Generator().manual_seed(0)
    for case, (name, pixels, batch) in BACKBONES.items():
        backbone = create_backbone(name, seed=0)
        freeze_batch_norm(backbone)
        images = torch.randint(0, 256, (batch, 3, pixels, pixels), generator=generator, dtype=torch.uint8)
        last, first = (
            training_pass(InLayout(deepcopy(backbone), layout), images)
            for layout in (torch.channels_last, torch.contiguous_format)
        )
        times = compare(last, first, repeats)
        claims.append(Claim("Layout, forward + backward", case, times, ours="channels-last", theirs="channels-first"))
    name, pixels, batch = BACKBONES["EfficientNet-Lite0, 112 px, batch 16"]
    claims += precision_claims(name, pixels, batch, repeats)
    claims.append(compile_claim(repeats))
    backbone.eval()
    inputs = backbone.input_normalisation(images)
    backbone.input_normalisation = nn.Identity()  # its checks cannot be traced, which folding needs
    plain, folded = inference(backbone, inputs), inference(fuse(backbone), inputs)
    off = float((plain() - folded()).abs().max() / plain().abs().max())
    assert off < 1e-3, off
    note = f"Folded features differ by up to {off:.0e} of the largest."
    times = compare(folded, plain, repeats)
    claims.append(Claim("Batch-norm in inference", case, times, ours="folded", theirs="as it is", note=note))
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
