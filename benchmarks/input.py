"""Training images per second against torchvision's ImageFolder with the same transforms in a DataLoader.

Both decode the same files and end at crops of the same size; the pixels of the evaluation transform are compared, too.
The times include starting and ending the loader, and processor time includes the loader processes.
"""

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, RandomSampler
from torchvision.datasets import ImageFolder

from ccp_dml.data.images import ImageFiles
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import TrainingBatches
from ccp_dml.data.published.image_cache import build_cache, through_cache
from ccp_dml.data.published.inventory import Inventory, ListedImage
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.transforms import eval_transform, train_transform

RESIZE, CROP, BATCH = 256, 227, 32
SIZES = {"500 x 375": (500, 375), "1600 x 1200": (1600, 1200)}  # CUB's photographs; a small camera's


def draw_images(folder: Path, classes: int, per_class: int, size: tuple[int, int]) -> None:
    """Write JPEG files with structure and noise, about as large as photographs of that size."""
    random_source = np.random.default_rng(0)
    width, height = size
    for label in range(classes):
        (folder / f"{label:03d}").mkdir(parents=True)
        for number in range(per_class):
            coarse = random_source.integers(0, 256, (height // 12, width // 12, 3), dtype=np.uint8)
            smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)).astype(int)
            noisy = (smooth + random_source.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / f"{label:03d}" / f"{number:03d}.jpg", quality=90)


def inventory_of(folder: Path) -> Inventory:
    found = ImageFolder(str(folder))
    entries = tuple(ListedImage(Path(path), label, "train") for path, label in found.samples)
    return Inventory(folder, entries, dict(enumerate(found.classes)))


def labelled(inventory: Inventory, decoded_side: int | None = None) -> LabelledSet:
    labels = torch.tensor([entry.number for entry in inventory.entries])
    paths = [entry.path for entry in inventory.entries]
    source = ImageFiles(paths, train_transform(RESIZE, CROP), eval_transform(RESIZE, CROP), decoded_side)
    return LabelledSet(source, torch.arange(len(paths)), labels, tuple(inventory.class_names.values()))


def our_batches(data: LabelledSet, workers: int) -> Iterator[object]:
    sampler = ClassBalancedBatches(data.labels, BATCH // 4, 4, seed=0)
    return iter(TrainingBatches(data, sampler, seed=0, workers=workers))


def their_batches(folder: Path, workers: int, count: int) -> Iterator[object]:
    data = ImageFolder(str(folder), transform=train_transform(RESIZE, CROP))
    endless = RandomSampler(data, replacement=True, num_samples=BATCH * count)  # restarting workers would cost the peer
    return iter(DataLoader(data, BATCH, sampler=endless, num_workers=workers))


def seconds_of(batches: Callable[[], Iterator[object]], count: int) -> tuple[float, float]:
    """Measure wall and processor seconds of `count` batches, the loader's start and end included."""
    started, used = time.monotonic(), processor_seconds()
    stream = batches()
    for _ in range(count):
        next(stream)
    del stream  # ends the loader processes, whose time counts once they are gone
    return time.monotonic() - started, processor_seconds() - used


def processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def check_agreement(folder: Path, data: LabelledSet) -> None:
    """Compare the pixels of the evaluation transform, which draws nothing."""
    theirs = ImageFolder(str(folder), transform=eval_transform(RESIZE, CROP))
    for position in random.Random(0).sample(range(len(theirs)), min(20, len(theirs))):
        ours = data.load(torch.tensor([position]))[0]
        assert torch.equal(ours, theirs[position][0]), theirs.samples[position]


def compare(folder: Path, name: str, workers: int, batches: int, repeats: int, table: Table) -> None:
    inventory = inventory_of(folder)
    plain = labelled(inventory)
    check_agreement(folder, plain)
    with tempfile.TemporaryDirectory() as scratch:
        build_cache(inventory, Path(scratch), RESIZE, lambda *_: None)
        ways: dict[str, Callable[[], Iterator[object]]] = {
            "ImageFolder": lambda: their_batches(folder, workers, batches),
            "ours": lambda: our_batches(plain, workers),
            "ours, reduced decoding": lambda: our_batches(labelled(inventory, RESIZE), workers),
            "ours, image cache": lambda: our_batches(
                labelled(through_cache(inventory, Path(scratch), RESIZE)), workers
            ),
        }
        for way in ways.values():
            seconds_of(way, 1)
        measured: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(repeats):
            for way, make in ways.items():
                measured[way].append(seconds_of(make, batches))
    for way, seconds in measured.items():
        ratios = [
            sorted(theirs[kind] / ours[kind] for theirs, ours in zip(measured["ImageFolder"], seconds, strict=True))
            for kind in (0, 1)
        ]
        rate = batches * BATCH / statistics.median(wall for wall, _ in seconds)
        ranges = [f"{statistics.median(kind):.2f}x ({kind[0]:.2f} to {kind[-1]:.2f})" for kind in ratios]
        table.add_row(name, f"{workers}", way, f"{rate:.0f}", *ranges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="measure these images (a subfolder per class), not generated ones")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--quick", action="store_true", help="fewer repeats and batches: under a minute")
    options = parser.parse_args()
    torch.set_num_threads(1)
    batches, repeats = (6, 3) if options.quick else (20, 5)

    table = Table(title="Training images, as a multiple of ImageFolder's speed")
    for column in ("images", "workers", "way", "images/s", "by the clock", "by processor time"):
        table.add_column(column, justify="left" if column in ("images", "way") else "right")
    with tempfile.TemporaryDirectory() as scratch:
        folders = {} if options.folder is None else {options.folder.name: options.folder}
        if not folders:
            for name, size in SIZES.items():
                folders[name] = Path(scratch, name)
                draw_images(folders[name], classes=10, per_class=8, size=size)
        for name, folder in folders.items():
            for workers in options.workers:
                compare(folder, name, workers, batches, repeats, table)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
