"""Training images per second against torchvision's ImageFolder with the same transforms in a DataLoader.

Both decode the same files and end at crops of the same size; the pixels of the evaluation transform are compared, too.
Both load in the main process, where processor time is counted exactly; loader processes would do the same in each. The
image cache holds images that were resized once, as JPEG files or as plain pixels (`ccp data prepare --cache 256
[--pixels]`).
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from side_by_side import Claim, compare, main
from torch.utils.data import DataLoader, RandomSampler
from torchvision.datasets import ImageFolder

from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import TrainingBatches
from ccp_dml.data.published.image_cache import build_cache, through_cache
from ccp_dml.data.published.inventory import Inventory, ListedImage
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.transforms import eval_transform, train_transform

GOAL = 7
RESIZE, CROP, BATCH = 256, 227, 32
SIZES = {(500, 375): 4, (1600, 1200): 1}  # of CUB's photographs and of a small camera's: batches that are timed


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


def our_batches(data: LabelledSet) -> Iterator[object]:
    sampler = ClassBalancedBatches(data.labels, BATCH // 4, 4, seed=0)
    return iter(TrainingBatches(data, sampler, seed=0))


def their_batches(folder: Path, count: int) -> Iterator[object]:
    data = ImageFolder(str(folder), transform=train_transform(RESIZE, CROP))
    drawn = RandomSampler(data, replacement=True, num_samples=BATCH * count)
    return iter(DataLoader(data, BATCH, sampler=drawn))


def loaded(batches: Iterator[object], count: int) -> None:
    for _ in range(count):
        next(batches)


def check_agreement(folder: Path, data: LabelledSet) -> None:
    """Compare the pixels of the evaluation transform, which draws nothing."""
    theirs = ImageFolder(str(folder), transform=eval_transform(RESIZE, CROP))
    for position in random.Random(0).sample(range(len(theirs)), min(20, len(theirs))):
        ours = data.load(torch.tensor([position]))[0]
        assert torch.equal(ours, theirs[position][0]), theirs.samples[position]


def claims_of(size: tuple[int, int], batches: int, repeats: int, scratch: Path) -> list[Claim]:
    folder = scratch / "images"
    draw_images(folder, classes=10, per_class=8, size=size)
    inventory = inventory_of(folder)
    caches = {name: scratch / name for name in ("jpeg", "pixels")}
    for name, root in caches.items():
        root.mkdir()
        build_cache(inventory, root, RESIZE, lambda *_: None, as_pixels=name == "pixels")
    through = {name: labelled(through_cache(inventory, root, RESIZE)) for name, root in caches.items()}
    plain = labelled(inventory)
    check_agreement(folder, plain)
    check_agreement(folder, through["pixels"])
    ways: dict[str, tuple[LabelledSet, float | None]] = {
        "image cache of pixels": (through["pixels"], 2.0),
        "image cache of JPEG files": (through["jpeg"], None),
        "no cache": (plain, 1.0),
        "no cache, data.reduced_decoding": (labelled(inventory, RESIZE), 1.0),
    }
    files = f"JPEG files of {size[0]} x {size[1]}"
    return [
        Claim(
            "Training images",
            f"{files}, {way}",
            compare(
                lambda data=data: loaded(our_batches(data), batches),
                lambda: loaded(their_batches(folder, batches), batches),
                repeats,
            ),
            theirs="ImageFolder in a DataLoader",
            at_least=wanted,
        )
        for way, (data, wanted) in ways.items()
    ]


def measure(quick: bool) -> list[Claim]:
    claims = []
    for size, batches in SIZES.items():
        with tempfile.TemporaryDirectory() as scratch:
            claims += claims_of(size, batches, 2 if quick else 5, Path(scratch))
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
