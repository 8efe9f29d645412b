"""The image cache: images resized once, because decoding large photographs takes most of an epoch's time."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from PIL import Image

from ccp_dml.data.images import decode, find_broken
from ccp_dml.data.published.inventory import Inventory
from ccp_dml.errors import UserError

QUALITY = 95
_FOLDER = re.compile(r"cached-(\d+)")


def cache_folder(root: Path, side: int) -> Path:
    return root / f"cached-{side}"


def build_cache(inventory: Inventory, root: Path, side: int, report: Callable[[int, int], None]) -> Path:
    """Store every image with a short side of at most `side` as a JPEG below `root/cached-SIDE`, and return that folder.

    It is built as `cached-SIDE.part` and renamed when it is complete; if that is interrupted, the next call goes on.
    `report` is told how many images are done, of how many.
    """
    folder = cache_folder(root, side)
    if folder.is_dir():
        return folder
    scratch = folder.with_name(f".{folder.name}.part")

    def store(path: Path) -> None:
        target = scratch / _name(path, inventory.base)
        if not target.exists():
            _store(path, target, side)

    paths = [entry.path for entry in inventory.entries]
    threads = ThreadPoolExecutor(os.cpu_count())  # Pillow works outside Python's lock
    try:
        for done, _ in enumerate(threads.map(store, paths), start=1):
            report(done, len(paths))
    finally:
        threads.shutdown(cancel_futures=True)  # after Ctrl-C, nobody wants to wait for the rest
    os.rename(scratch, folder)
    return folder


def through_cache(inventory: Inventory, root: Path, side: int) -> Inventory:
    """Take the same images from the smallest cache below `root` whose short side is at least `side`."""
    sides = sorted(int(match[1]) for entry in root.iterdir() if (match := _FOLDER.fullmatch(entry.name)))
    fitting = [size for size in sides if size >= side]
    if not fitting:
        there = f"only {', '.join(map(str, sides))}" if sides else "none"
        raise UserError(
            f"`cached` is set, but {root} has no image cache for `resize`={side} ({there}): make one with "
            f"`ccp data prepare NAME --root {root} --cache {side}`"
        )
    folder = cache_folder(root, fitting[0])
    entries = (replace(entry, path=folder / _name(entry.path, inventory.base)) for entry in inventory.entries)
    return replace(inventory, base=folder, entries=tuple(entries))


def _name(path: Path, base: Path) -> Path:
    """Name an image's place in the cache: as in the data set, and always called a JPEG."""
    name = path.relative_to(base)
    return name if name.suffix.lower() in (".jpg", ".jpeg") else name.with_name(f"{name.name}.jpg")


def _store(path: Path, target: Path, side: int) -> None:
    try:
        image = decode(path)
    except Exception as error:
        reason = find_broken([path]).get(0, str(error))
        raise UserError(f"cannot read the image {path} ({reason}): repair or restore it, then run this again") from None
    shrink = side / min(image.size)
    if shrink < 1:
        # Sizes are cut off as torchvision does, so that resizing to the same side later changes nothing.
        width, height = (side if edge == min(image.size) else int(edge * shrink) for edge in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        image.save(scratch, "JPEG", quality=QUALITY, subsampling=0)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
