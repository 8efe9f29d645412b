from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ccp_dml.data.files.images import ImageReading
from ccp_dml.data.transforms import eval_transform, train_transform

TRANSFORMS = {"train_transform": train_transform(16, 12), "eval_transform": eval_transform(16, 12)}


@pytest.fixture
def transforms():
    """Keyword arguments of `ImageFiles`, small enough for quick tests."""
    return TRANSFORMS


@pytest.fixture
def reading():
    """How the loaders of data sets read images with these transforms."""
    return ImageReading(**TRANSFORMS)


@pytest.fixture
def write_images(tmp_path: Path) -> Callable[..., Path]:
    """Writes small images, each in a grey of its own, to the given paths below a temporary folder, which it returns."""

    def write(*names: str) -> Path:
        for number, name in enumerate(names):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 16), (number * 9 % 256,) * 3).save(path)
        return tmp_path

    return write


@pytest.fixture
def write_broken(tmp_path: Path) -> Callable[[str], Path]:
    """Writes an image that ends in the middle."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return path

    return write
