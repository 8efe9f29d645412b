"""Turn images into network inputs, as the protocol of MLRC does (Musgrave et al., A Metric Learning Reality Check)."""

from collections.abc import Callable, Iterable

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from ccp_dml.errors import UserError

ImageTransform = Callable[[Image.Image | Tensor], Tensor]
"""RGB, a picture or its pixels (3, H, W) -> uint8 (3, H', W'); each network scales and normalises by itself."""


def train_transform(
    resize: int = 256,
    crop: int = 227,
    scale: tuple[float, float] = (0.16, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
) -> ImageTransform:
    """Resize the short side, then make a random part (`scale` of area, aspect `ratio`) a square of `crop` pixels."""
    return v2.Compose(
        [
            v2.PILToTensor(),  # first, because torch resizes uint8 in half of Pillow's time
            v2.Resize(resize),
            v2.RandomResizedCrop(crop, scale=scale, ratio=ratio),
            v2.RandomHorizontalFlip(flip),
        ]
    )


def eval_transform(resize: int = 256, crop: int = 227) -> ImageTransform:
    """Resize the short side to `resize`, then cut the central square of `crop` pixels."""
    if crop > resize:
        raise UserError(f"`crop`={crop} does not fit into `resize`={resize}: make it {resize} or less")
    return v2.Compose([v2.PILToTensor(), v2.Resize(resize), v2.CenterCrop(crop)])


def apply_seeded(transform: ImageTransform, images: Iterable[Image.Image | Tensor], seed: int) -> list[Tensor]:
    """Transform each image at random, as a pure function of `images` and `seed`.

    torchvision draws from torch's global CPU generator, whose state is therefore put aside and restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators, too
        return [transform(image) for image in images]
