"""MNIST: handwritten digits, ten classes that both train and test (the paper's proof of concept)."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccp_dml.data.files.class_folders import places
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.published_set import Published, Survey, differences, not_found
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import tensor_digest

SIZES = {"train": SplitSize(10, 60_000), "test": SplitSize(10, 10_000)}
TITLE = "MNIST"
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
LAYOUT = "the four idx files (train-images-idx3-ubyte, ..., packed as .gz or not), there, in raw/ or in MNIST/raw/"
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
IDX_UBYTE = 0x08
"""The element type that MNIST's files state."""


class DigitImages:
    """Grey images in memory. There is no augmentation; the three channels that networks expect are one, seen thrice."""

    in_memory = True

    def __init__(self, images: Tensor) -> None:
        self.images = images  # (N, 28, 28) uint8

    def __len__(self) -> int:
        return len(self.images)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:  # noqa: ARG002 seeds belong to every source
        return self.images[positions][:, None].expand(-1, 3, -1, -1)

    def name(self, position: int) -> str:
        return f"image {position}"

    def picture(self, position: int) -> Image.Image:
        return Image.fromarray(self.images[position].numpy())

    def signature(self, positions: Tensor) -> str:
        return tensor_digest([("images", self.images[positions])])


def load_mnist(root: str | Path) -> DataHalves:
    """Load the 60,000 images to learn from and the 10,000 that are scored, of the same ten classes."""
    root = Path(root).expanduser()
    base = _find(root)
    halves = {split: _read_split(base, split) for split in FILES}
    names = tuple(str(digit) for digit in range(10))

    def labelled(split: str) -> LabelledSet:
        images, labels = halves[split]
        return LabelledSet(DigitImages(images), torch.arange(len(images)), labels, names)

    notes = [f"not {TITLE} as published: {text}" for text in differences(_sizes(halves), SIZES)]
    return DataHalves(labelled("train"), TestSet(labelled("test")), tuple(notes), incomplete=tuple(notes))


def survey_mnist(root: Path) -> Survey:
    base = _find(root)
    return Survey(base, _sizes({split: _read_split(base, split) for split in FILES}))


def _sizes(halves: dict[str, tuple[Tensor, Tensor]]) -> dict[str, SplitSize]:
    return {split: SplitSize(len(labels.unique()), len(images)) for split, (images, labels) in halves.items()}


def _find(root: Path) -> Path:
    """Find the folder that holds the files, or holds them in raw/, as torchvision does."""
    for base in places(root):
        if all(_locate(base, name) is not None for names in FILES.values() for name in names):
            return base
    raise not_found(root, TITLE, LAYOUT)


def _locate(base: Path, name: str) -> Path | None:
    candidates = (base / folder / f"{name}{suffix}" for folder in ("", "raw") for suffix in ("", ".gz"))
    return next((file for file in candidates if file.is_file()), None)


def _read_split(base: Path, split: str) -> tuple[Tensor, Tensor]:
    """Read images (N, 28, 28) uint8 and labels (N,) int64."""
    images_name, labels_name = FILES[split]
    images, labels = _read_idx(base, images_name, dimensions=3), _read_idx(base, labels_name, dimensions=1).long()
    if len(images) != len(labels) or (len(labels) and int(labels.max()) > 9):
        raise UserError(
            f"{images_name} and {labels_name} in {base} do not fit together ({len(images)} images, {len(labels)} "
            "labels): get both again"
        )
    return images, labels


def _read_idx(base: Path, name: str, dimensions: int) -> Tensor:
    """Read an idx file: two zero bytes, the element type, the number of dimensions, their sizes, the elements."""
    file = _locate(base, name)
    assert file is not None
    try:
        contents = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if tuple(contents[:4]) != (0, 0, IDX_UBYTE, dimensions):
            raise ValueError("it is no idx file of the right kind")
        sizes = np.frombuffer(contents, dtype=">u4", count=dimensions, offset=4).tolist()
        elements = np.frombuffer(contents, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(sizes)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{file} is damaged or cut off ({error}): get it again") from None
    return torch.from_numpy(elements.copy())


MNIST = Published(
    name="mnist",
    title=TITLE,
    page="http://yann.lecun.com/exdb/mnist/",
    sizes=SIZES,
    files=tuple(
        RemoteFile(f"{name}.gz", urls=tuple(f"{mirror}{name}.gz" for mirror in MIRRORS), md5=md5, place="raw")
        for name, md5 in (
            ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
        )
    ),
    folder="MNIST",
    layout=LAYOUT,
    survey=survey_mnist,
)
