"""Image files as a source, and what to do about those that cannot be read."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ccp_dml.data.transforms import ImageTransform, apply_seeded
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.digests import digest, file_digest

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a file may hold, whatever its name: Pillow goes by content, and for EPS, say, it would start another program."""


class ImageFiles:
    """Images that are decoded each time they are asked for."""

    in_memory = False

    def __init__(self, paths: Sequence[Path], train_transform: ImageTransform, eval_transform: ImageTransform) -> None:
        self.paths = list(paths)
        self._train_transform = train_transform
        self._eval_transform = eval_transform

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, positions: Tensor, seed: int | None) -> Tensor:
        images = (self.picture(position) for position in positions.tolist())
        if seed is None:
            return torch.stack([self._eval_transform(image) for image in images])
        return torch.stack(apply_seeded(self._train_transform, images, seed))

    def name(self, position: int) -> str:
        return os.fsencode(self.paths[position]).decode("utf-8", errors="replace")  # pages and JSON hold no stray bytes

    def signature(self, positions: Tensor) -> str:
        contents = [_content(self.paths[position]) for position in positions.tolist()]
        return digest(repr(self._train_transform), repr(self._eval_transform), *contents)

    def picture(self, position: int) -> Image.Image:
        path = self.paths[position]
        try:
            return decode(path)
        except Exception as error:
            raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> UserError:
    return UserError(
        f"cannot read the image {path} ({reason_of(error)}): repair or remove it, "
        "or set `skip_broken`=true to leave out such files"
    )


def _content(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise unreadable(path, error) from error


def decode(path: Path) -> Image.Image:
    """Read an image as RGB, upright by its EXIF orientation, transparent parts white."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")  # opening a pipe would wait for ever
    with Image.open(path, formats=FORMATS) as image:
        ImageOps.exif_transpose(image, in_place=True)
        return as_rgb(image)


def as_rgb(image: Image.Image) -> Image.Image:
    """Turn an image of any mode into RGB, transparent parts white."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Bring deeper grey values to 0..255, of which Pillow would cut off everything outside.

    Which value is white is known for 16 bits, and for floating point by convention (1.0); for others it is not.
    """
    values = np.asarray(image)
    if image.mode == "F":
        if not (values.min() >= 0 and values.max() <= 1):  # nor if there is a NaN
            raise ValueError("its floating-point pixels are not all in 0..1; convert it to 8 bits")
        values = (values * 255).round()
    elif image.mode.startswith("I;16") or image.format in ("PNG", "PPM"):  # which older Pillows open as "I"
        values = values.clip(0, 65535) // 257
    else:
        raise ValueError("it has 32-bit integer pixels, of which no value is known to be white; convert it to 8 bits")
    return Image.fromarray(values.astype(np.uint8))


def find_broken(paths: Sequence[Path]) -> dict[int, str]:
    """Decode all files in parallel threads; return index -> reason of those that cannot be decoded."""
    with ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 1)) as threads:
        reasons = threads.map(_why_broken, paths)
        return {index: reason for index, reason in enumerate(reasons) if reason is not None}


def describe_broken(paths: Sequence[Path], broken: dict[int, str]) -> str:
    """Say how many files are left out, which, and why."""
    files = listing([f"{paths[index]} ({reason})" for index, reason in broken.items()], limit=20)
    return f"left out {len(broken)} of {len(paths)} images that cannot be read: {files}"


def _why_broken(path: Path) -> str | None:
    try:
        decode(path)
    except Exception as error:
        return reason_of(error)
    return None


def reason_of(error: Exception) -> str:
    """Say why an image cannot be read; a decoder may raise anything, sometimes without a word."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__
