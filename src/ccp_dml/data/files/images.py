"""Image files as a source, and what to do about those that cannot be read."""

import io
import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from ccp_dml.data.transforms import ImageTransform, apply_seeded
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.digests import digest, file_digest
from ccp_dml.foundation.machine import usable_cores

SUFFIXES = frozenset({".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
UNREAD_FORMATS = "heic heif hif avif jxl jp2 j2k jpf jpx jxr mpo psd tga exr hdr pbm pgm pnm"
RAW_FORMATS = "3fr arw cr2 cr3 crw dcr dng erf iiq kdc mef mos mrw nef nrw orf pef raf raw rw2 rwl sr2 srf srw x3f"
UNREAD_SUFFIXES = frozenset(f".{name}" for name in f"{UNREAD_FORMATS} {RAW_FORMATS}".split())
"""How names of pictures end that cannot be read here: telephones' and cameras' own formats above all."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a file may hold, whatever its name: Pillow goes by content, and for EPS, say, it would start another program."""
MAY_HOLD_ORIENTATION = (b"Exif", b"http://ns.adobe.com/xap/")  # the segments of a JPEG that Pillow turns an image by
MOST_TIMES_LONGER = 200
"""The long side of an image to its short one. Whoever resizes the short side to 256 makes 13 million pixels of that."""

PLAIN_PPM = re.compile(rb"P6\n(\d{1,5}) (\d{1,5})\n255\n")


class TooThin(ValueError):
    """An image of few pixels that would fill the memory once its short side is enlarged."""


class ImageFiles:
    """Images that are decoded each time they are asked for.

    Args:
        paths: one file per image.
        train_transform: makes a random view of an image's pixels.
        eval_transform: makes the view of an image's pixels that evaluations see.
        decoded_side: decode large JPEG files at a half, a quarter or an eighth of their size, as long as the short side
            keeps this many pixels. That is faster and looks the same, but is not the same bit for bit. None: never.
    """

    in_memory = False

    def __init__(
        self,
        paths: Sequence[Path],
        train_transform: ImageTransform,
        eval_transform: ImageTransform,
        decoded_side: int | None = None,
    ) -> None:
        self.paths = list(paths)
        self.decoded_side = decoded_side
        self._train_transform = train_transform
        self._eval_transform = eval_transform

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        images = (self.pixels(position) for position in positions.tolist())
        if seeds is None:
            return torch.stack([self._eval_transform(image) for image in images])
        return torch.stack(apply_seeded(self._train_transform, images, seeds.tolist()))

    def load_views(self, positions: Tensor, seeds: Tensor) -> Tensor:
        """Load the evaluation's view, and a random one per row of `seeds` (V - 1, B), of each image: (V, B, 3, H, W).

        Each image is decoded once for all of its views, which look as `load` gives them.
        """
        views: list[list[Tensor]] = [[] for _ in range(1 + len(seeds))]
        for place, position in enumerate(positions.tolist()):
            pixels = self.pixels(position)
            views[0].append(self._eval_transform(pixels))
            for view, seed in enumerate(seeds[:, place].tolist(), start=1):
                views[view] += apply_seeded(self._train_transform, [pixels], [seed])
        return torch.stack([torch.stack(view) for view in views])

    def name(self, position: int) -> str:
        return os.fsencode(self.paths[position]).decode("utf-8", errors="replace")  # pages and JSON hold no stray bytes

    def signature(self, positions: Tensor) -> str:
        contents = [_content(self.paths[position]) for position in positions.tolist()]
        decoding = [] if self.decoded_side is None else [f"decoded_side={self.decoded_side}"]
        return digest(repr(self._train_transform), repr(self._eval_transform), *decoding, *contents)

    def picture(self, position: int) -> Image.Image:
        path = self.paths[position]
        try:
            return decode(path)
        except Exception as error:
            raise unreadable(path, error) from error

    def pixels(self, position: int) -> Tensor:
        """Read an image as a tensor (3, H, W) of bytes."""
        path = self.paths[position]
        try:
            return decode_pixels(path, self.decoded_side)
        except Exception as error:
            raise unreadable(path, error) from error


@dataclass(frozen=True)
class ImageReading:
    """How a data set of image files is read; see `ImageFiles` for the first three."""

    train_transform: ImageTransform
    eval_transform: ImageTransform
    decoded_side: int | None = None
    skip_broken: bool = False  # leave unreadable images out instead of stopping
    drop_small_classes: bool = False  # leave training classes with a single image out instead of stopping

    def source(self, paths: Sequence[Path]) -> ImageFiles:
        return ImageFiles(paths, self.train_transform, self.eval_transform, self.decoded_side)


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
    refuse_irregular(path)
    with Image.open(path, formats=FORMATS) as image:
        return upright_rgb(image)


def decode_pixels(path: Path, side: int | None = None) -> Tensor:
    """Read what `decode` reads as a tensor (3, H, W) of bytes; with a `side`, see `pixels_of`."""
    refuse_irregular(path)
    return pixels_of(path.read_bytes(), side)


def pixels_of(content: bytes, side: int | None = None) -> Tensor:
    """Decode the content of an image file as a tensor (3, H, W) of bytes.

    Common JPEG files and plain PPM files go straight into it. With a `side`, a JPEG is decoded at the smallest of its
    full, half, quarter and eighth size whose short side keeps `side` pixels.
    """
    if (pixels := _plain_jpeg(content, side)) is not None or (pixels := _plain_ppm(content)) is not None:
        refuse_thin(pixels.shape[2], pixels.shape[1])
        return pixels
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if side is not None:
            image.draft("RGB", (side, side))  # does nothing to other formats
        return pil_to_tensor(upright_rgb(image))


def _plain_jpeg(content: bytes, side: int | None) -> Tensor | None:
    """Decode a JPEG file that needs nothing but decoding; None if it needs more, is damaged, or is no JPEG at all."""
    if not content.startswith(b"\xff\xd8\xff") or any(mark in content for mark in MAY_HOLD_ORIENTATION):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        to_be_reduced = side is not None and min(height, width) >= 2 * side
        too_large = height * width > (Image.MAX_IMAGE_PIXELS or math.inf)  # Pillow warns of such files, or refuses them
        if to_be_reduced or too_large or colours not in ("YCbCr", "Gray"):
            return None
        return torch.from_numpy(simplejpeg.decode_jpeg(content, "RGB")).permute(2, 0, 1)
    except ValueError:
        return None  # Pillow knows what is wrong with it, or how to read it all the same


def encode_ppm(pixels: Tensor) -> bytes:
    """Write a tensor (3, H, W) of bytes as a PPM file: a short header, then the pixels as they are."""
    _, height, width = pixels.shape
    return b"P6\n%d %d\n255\n" % (width, height) + pixels.permute(1, 2, 0).contiguous().numpy().tobytes()


def _plain_ppm(content: bytes) -> Tensor | None:
    """Read a PPM file as `encode_ppm` writes it, without a copy per channel; None if it is anything else."""
    found = PLAIN_PPM.match(content)
    if found is None:
        return None
    width, height = int(found[1]), int(found[2])
    if width * height == 0 or len(content) != found.end() + 3 * width * height:
        return None
    pixels = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=found.end())
    return pixels.view(height, width, 3).permute(2, 0, 1)


def refuse_irregular(path: Path) -> None:
    """Raise if `path` is no regular file: opening a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")


def refuse_thin(width: int, height: int) -> None:
    """Raise if one side is so much longer than the other that resizing the short one would fill the memory."""
    if max(width, height) > MOST_TIMES_LONGER * min(width, height):
        raise TooThin(
            f"of its {width:,} by {height:,} pixels, one side is more than {MOST_TIMES_LONGER} times the other; crop it"
        )


def upright_rgb(image: Image.Image) -> Image.Image:
    """Turn an image upright by its EXIF orientation, and into RGB, transparent parts white."""
    ImageOps.exif_transpose(image, in_place=True)
    return as_rgb(image)


def as_rgb(image: Image.Image) -> Image.Image:
    """Turn an image of any mode into RGB, transparent parts white; one that is too thin to be resized is refused."""
    refuse_thin(*image.size)
    if image.mode == "F" or image.mode.startswith("I"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def picture_of(item: Any) -> Image.Image:
    """Turn a path, the bytes of a file, a PIL image or a uint8 array (H, W) or (H, W, 3) into an upright RGB image."""
    if isinstance(item, str | Path):
        return decode(Path(item).expanduser())
    if isinstance(item, bytes):
        with Image.open(io.BytesIO(item), formats=FORMATS) as image:
            return upright_rgb(image)
    if isinstance(item, Image.Image):
        return as_rgb(ImageOps.exif_transpose(item))
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.ndim not in (2, 3) or (item.ndim == 3 and item.shape[2] != 3):
            raise ValueError(
                f"an array must be uint8 (height, width) or (height, width, 3), not {item.dtype} {item.shape}"
            )
        if 0 in item.shape:
            raise ValueError(f"the array is empty: {item.shape}")
        return as_rgb(Image.fromarray(item))
    if isinstance(item, Tensor):
        raise ValueError(
            f"it is a tensor {tuple(item.shape)}; give the image before ToTensor() or another transform: a path, a PIL "
            "image or a uint8 array (height, width, 3)"
        )
    raise ValueError(
        f"an image is a path, a PIL image, a uint8 array or the bytes of a file, not {type(item).__name__}"
    )


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


def find_broken(paths: Sequence[Path], report: Callable[[int, int], None] = lambda *_: None) -> dict[int, str]:
    """Decode all files in parallel threads; return index -> reason of those that cannot be decoded.

    `report` hears how many have been decoded, of how many.
    """
    broken: dict[int, str] = {}
    report(0, len(paths))
    with ThreadPoolExecutor(min(32, usable_cores() + 1)) as threads:
        for index, reason in enumerate(threads.map(_why_broken, paths)):
            if reason is not None:
                broken[index] = reason
            report(index + 1, len(paths))
    return broken


def readable(paths: Sequence[Path]) -> tuple[list[int], list[str]]:
    """Find the files that can be decoded: their indices, and a note about the others, if there are any."""
    broken = find_broken(paths)
    if not broken:
        return list(range(len(paths))), []
    files = listing([f"{paths[index]} ({reason})" for index, reason in broken.items()], limit=20)
    note = f"left out {len(broken):,} of {len(paths):,} images that cannot be read: {files}"
    return [index for index in range(len(paths)) if index not in broken], [note]


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
