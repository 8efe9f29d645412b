"""The image cache: images resized once, because decoding large photographs takes most of an epoch's time.

As JPEG files they take little room, and look the same. As plain pixels they take about five times as much, need no
decoding, and are the same bit for bit as what training would have made of the original files.
"""

import io
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shlex import quote

from PIL import Image
from torchvision.transforms.v2.functional import resize

from ccp_dml.data.files.images import decode, decode_pixels, encode_ppm, find_broken
from ccp_dml.data.published.inventory import Inventory
from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import usable_cores

QUALITY = 95
_FOLDER = re.compile(r"cached-(\d+)(-pixels)?")


def cache_folder(root: Path, side: int, *, as_pixels: bool = False) -> Path:
    return root / f"cached-{side}{'-pixels' if as_pixels else ''}"


def build_cache(
    inventory: Inventory, root: Path, side: int, report: Callable[[int, int], None], *, as_pixels: bool = False
) -> Path:
    """Store every image with a short side of at most `side` below `root/cached-SIDE`, and return that folder.

    Images are stored as JPEG files, or `as_pixels` as PPM files below `root/cached-SIDE-pixels`. The folder has a name
    that ends in `.part` until it is complete; if that is interrupted, the next call goes on. Images that the data set
    lacks are left out, and added by a call that finds them. `report` is told how many images are done, of how many.
    """
    folder = cache_folder(root, side, as_pixels=as_pixels)
    scratch = folder.with_name(f".{folder.name}.part")
    place = folder if folder.is_dir() else scratch

    def store(path: Path) -> None:
        target = place / _name(path, inventory.base, as_pixels)
        if not target.exists():
            _store(path, target, side, as_pixels)

    missing = set(inventory.missing)
    paths = [entry.path for entry in inventory.entries if entry.path not in missing]
    threads = ThreadPoolExecutor(usable_cores())  # Pillow works outside Python's lock
    try:
        for done, _ in enumerate(threads.map(store, paths), start=1):
            report(done, len(paths))
    finally:
        threads.shutdown(cancel_futures=True)  # after Ctrl-C, nobody wants to wait for the rest
    if place == scratch:
        os.rename(scratch, folder)
    return folder


def through_cache(inventory: Inventory, root: Path, side: int) -> Inventory:
    """Take the same images from the smallest cache below `root` whose short side is at least `side`.

    Of two caches of that side, the one of plain pixels is read.
    """
    found = [match for entry in root.iterdir() if (match := _FOLDER.fullmatch(entry.name))]
    fitting = [(int(match[1]), match[2] is None) for match in found if int(match[1]) >= side]
    if not fitting:
        sides = sorted({int(match[1]) for match in found})
        there = f"only {', '.join(map(str, sides))}" if sides else "none"
        raise UserError(
            f"`cached` is set, but {root} has no image cache for `resize`={side} ({there}): make one with "
            f"`ccp data prepare NAME --root {quote(str(root))} --cache {side}`"
        )
    smallest, is_jpeg = min(fitting)
    folder = cache_folder(root, smallest, as_pixels=not is_jpeg)
    names = (_name(entry.path, inventory.base, not is_jpeg) for entry in inventory.entries)
    entries = (replace(entry, path=folder / name) for entry, name in zip(inventory.entries, names, strict=True))
    return replace(inventory, base=folder, entries=tuple(entries))


def _name(path: Path, base: Path, as_pixels: bool) -> Path:
    """Name an image's place in the cache: as in the data set, with the suffix of what it has become."""
    name = path.relative_to(base)
    if as_pixels:
        return name.with_name(f"{name.name}.ppm")
    return name if name.suffix.lower() in (".jpg", ".jpeg") else name.with_name(f"{name.name}.jpg")


def _store(path: Path, target: Path, side: int, as_pixels: bool) -> None:
    try:
        content = _pixels(path, side) if as_pixels else _jpeg(path, side)
    except Exception as error:
        reason = find_broken([path]).get(0, str(error))
        raise UserError(f"cannot read the image {path} ({reason}): repair or restore it, then run this again") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _jpeg(path: Path, side: int) -> bytes:
    image = decode(path)
    shrink = side / min(image.size)
    if shrink < 1:
        # Sizes are cut off as torchvision does, so that resizing to the same side later changes nothing.
        width, height = (side if edge == min(image.size) else int(edge * shrink) for edge in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, subsampling=0)
    return content.getvalue()


def _pixels(path: Path, side: int) -> bytes:
    pixels = decode_pixels(path)
    return encode_ppm(resize(pixels, [side]) if min(pixels.shape[1:]) > side else pixels)  # as transforms resize
