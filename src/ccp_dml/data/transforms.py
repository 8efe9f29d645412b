"""Turn images into network inputs: the evaluation's view, and random views that networks learn from."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ccp_dml.errors import UserError

ImageTransform = Callable[[Image.Image | Tensor], Tensor]
"""RGB, a picture or its pixels (3, H, W) -> uint8 (3, H', W'); each network scales and normalises by itself."""


@dataclass(frozen=True)
class Augmentation:
    """How training images are changed at random."""

    crop_area: tuple[float, float]  # smallest and largest part of the image that is cut out
    aspect: tuple[float, float]  # of that part, width to height
    flip: float  # probability of left for right
    turn: float  # largest angle, in degrees, to either side
    colour: float  # largest change of brightness, contrast and saturation: 0.2 is 80 to 120 %


AUGMENTATIONS = {
    # Musgrave et al., A Metric Learning Reality Check: for photographs.
    "mlrc": Augmentation(crop_area=(0.16, 1.0), aspect=(3 / 4, 4 / 3), flip=0.5, turn=0.0, colour=0.0),
    # For images whose class is lost in a mirror or a small cut-out: characters, products with text, medical images.
    "light": Augmentation(crop_area=(0.8, 1.0), aspect=(0.9, 1 / 0.9), flip=0.0, turn=8.0, colour=0.2),
}


def train_transform(
    resize: int = 256, crop: int = 227, augmentation: Augmentation = AUGMENTATIONS["mlrc"]
) -> ImageTransform:
    """Resize the short side, make a random part of the image a square of `crop` pixels, then flip, turn and colour it.

    What an augmentation leaves out is no part of the transform, whose `repr` the feature cache goes by.
    """
    steps: list[Callable[..., Tensor]] = [
        v2.PILToTensor(),  # first, because torch resizes uint8 in half of Pillow's time
        v2.Resize(resize),
        v2.RandomResizedCrop(crop, scale=augmentation.crop_area, ratio=augmentation.aspect),
        v2.RandomHorizontalFlip(augmentation.flip),
    ]
    if augmentation.turn:
        steps += turning(crop, augmentation.turn)
    if augmentation.colour:
        steps.append(v2.ColorJitter(*[augmentation.colour] * 3))
    return v2.Compose(steps)


def turning(side: int, degrees: float) -> list[Callable[..., Tensor]]:
    """Turn a square by up to `degrees`; its corners are filled with the mirrored border, not with black."""
    widest = math.radians(min(degrees, 45.0))  # at 45 degrees a square needs the most room
    margin = math.ceil(side / 2 * (math.cos(widest) + math.sin(widest) - 1))
    return [
        v2.Pad(margin, padding_mode="reflect"),
        v2.RandomRotation(degrees, InterpolationMode.BILINEAR),
        v2.CenterCrop(side),
    ]


def eval_transform(resize: int = 256, crop: int = 227) -> ImageTransform:
    """Resize the short side to `resize`, then cut the central square of `crop` pixels."""
    if crop > resize:
        raise UserError(f"`crop`={crop} does not fit into `resize`={resize}: make it {resize} or less")
    return v2.Compose([v2.PILToTensor(), v2.Resize(resize), v2.CenterCrop(crop)])


def apply_seeded(
    transform: ImageTransform, images: Iterable[Image.Image | Tensor], seeds: Sequence[int]
) -> list[Tensor]:
    """Transform each image at random, as a pure function of the image and its own seed.

    torchvision draws from torch's global CPU generator, whose state is therefore put aside and restored.
    """
    with torch.random.fork_rng(devices=[]):
        return [_apply_seeded(transform, image, seed) for image, seed in zip(images, seeds, strict=True)]


def _apply_seeded(transform: ImageTransform, image: Image.Image | Tensor, seed: int) -> Tensor:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators, too
    return transform(image)
