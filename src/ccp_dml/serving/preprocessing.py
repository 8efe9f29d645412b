"""How an item becomes a network input: part of the model, because other preprocessing gives other vectors."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from ccp_dml.config.schema import DataConfig
from ccp_dml.data.files.images import decode_pixels, picture_of, pixels_of, reason_of
from ccp_dml.data.glyph_drawing import SIDE as GLYPH_SIDE
from ccp_dml.data.transforms import ImageTransform, eval_transform
from ccp_dml.errors import UserError

DIGIT_SIDE = 28
GREY_SIDES = {"glyphs": GLYPH_SIDE, "mnist": DIGIT_SIDE}
"""Data sets of square grey images, and how large those are."""


@dataclass(frozen=True)
class PhotoPreprocessing:
    """Short side to `resize`, then the central square of `crop` pixels: uint8 (3, crop, crop).

    With `reduced_decoding`, large JPEG files are decoded at a half, a quarter or an eighth of their size, as far as the
    short side keeps `resize` pixels: faster, and the same but for a little noise in the pixels.
    """

    resize: int
    crop: int
    reduced_decoding: bool = False
    kind: ClassVar[str] = "photo"

    @cached_property
    def transform(self) -> ImageTransform:
        return eval_transform(self.resize, self.crop)

    def load(self, item: Any) -> Tensor:
        side = self.resize if self.reduced_decoding else None
        if isinstance(item, bytes):
            return self.transform(pixels_of(item, side))
        if isinstance(item, str | Path):
            return self.transform(decode_pixels(Path(item).expanduser(), side))
        return self.transform(picture_of(item))


@dataclass(frozen=True)
class GreyPreprocessing:
    """Square grey images, seen three times: uint8 (3, side, side). One of another size is scaled and cropped."""

    side: int
    kind: ClassVar[str] = "grey"

    def transform(self, image: Image.Image) -> Tensor:
        grey: Tensor = v2.functional.pil_to_tensor(image.convert("L"))
        if grey.shape[-2:] != (self.side, self.side):
            grey = v2.functional.center_crop(v2.functional.resize(grey, [self.side]), [self.side])
        return grey.expand(3, -1, -1)

    def load(self, item: Any) -> Tensor:
        return self.transform(picture_of(item))


@dataclass(frozen=True)
class VectorPreprocessing:
    """Vectors (width,) as they are: the network was trained on precomputed features."""

    width: int
    kind: ClassVar[str] = "vector"
    transform: ClassVar[None] = None

    def load(self, item: Any) -> Tensor:
        array = np.asarray(item)
        if array.dtype.kind not in "fiu" or array.shape != (self.width,):
            what = f"{type(item).__name__} {item}" if isinstance(item, str | Path) else f"shape {array.shape}"
            raise ValueError(f"this model embeds vectors of {self.width} numbers, not images; this is a {what}")
        if not np.isfinite(array).all():
            raise ValueError("the vector has NaN or infinite values")
        return torch.from_numpy(array.astype(np.float32))


Preprocessing = PhotoPreprocessing | GreyPreprocessing | VectorPreprocessing
KINDS: dict[str, type[Preprocessing]] = {
    each.kind: each for each in (PhotoPreprocessing, GreyPreprocessing, VectorPreprocessing)
}


def preprocessing_of(data: DataConfig, features: int | None) -> Preprocessing:
    """Describe what a run did to images before scoring; `features` is the width of the vectors it learned from."""
    if features is not None:
        return VectorPreprocessing(features)
    if data.name in GREY_SIDES:
        return GreyPreprocessing(GREY_SIDES[data.name])
    return PhotoPreprocessing(*data.pixels, reduced_decoding=data.reduced_decoding)


def as_values(preprocessing: Preprocessing) -> dict[str, Any]:
    """Write a preprocessing as plain values. What is switched off is left out: a model's digest must not change."""
    return {"kind": preprocessing.kind} | {name: value for name, value in asdict(preprocessing).items() if value}


def from_values(values: dict[str, Any]) -> Preprocessing:
    """Invert `as_values`; raises what a wrong kind or a missing number gives."""
    arguments: dict[str, Any] = {name: int(value) for name, value in values.items() if name != "kind"}
    if "reduced_decoding" in arguments:
        arguments["reduced_decoding"] = bool(arguments["reduced_decoding"])
    return KINDS[values["kind"]](**arguments)


def name_of(item: Any, position: int) -> str:
    """Name an item in messages: its path, or what it is and where it stands."""
    return str(item) if isinstance(item, str | Path) else f"{type(item).__name__} at position {position}"


def unusable(items: Sequence[Any], position: int, error: Exception) -> UserError:
    """Say which of the items cannot be embedded, and what to do: the only one cannot be left out."""
    remedy = 'or pass on_error="skip" (`ccp embed --skip-broken`) to leave such items out'
    return UserError(
        f"cannot embed {name_of(items[position], position)} ({reason_of(error)}): "
        + ("repair it, or give another one" if len(items) == 1 else f"repair or remove it, {remedy}")
    )
