"""Cars196: 196 models of cars; the first 98 train, the last 98 test (its own split by image is for classification)."""

from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from ccp_dml.data.files.class_folders import find_class_folders, leading_number, places
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize, half_of, list_folders
from ccp_dml.data.published.published_set import Published, not_found, survey_of
from ccp_dml.errors import UserError

TRAIN_CLASSES = 98
SIZES = {"train": SplitSize(98, 8_054), "test": SplitSize(98, 8_131)}
TITLE = "Cars196"
ANNOTATIONS = "cars_annos.mat"
IMAGES = "car_ims"
LAYOUT = (
    f"either {ANNOTATIONS} beside {IMAGES}/, or one folder per class under its official name "
    "(AM General Hummer SUV 2000, ...) or number (1 to 196), perhaps divided into train/ and test/"
)

COUNTS_MISSING = f"which classes are short is told once {ANNOTATIONS} lies beside their folders"


def read_cars196(root: Path) -> Inventory:
    for base in places(root):
        if (base / ANNOTATIONS).is_file() and (base / IMAGES).is_dir():
            return _from_annotations(base)
    if (found := find_class_folders(root, class_number)) is None:
        raise not_found(root, TITLE, LAYOUT)
    base, folders = found
    names, counts = dict(enumerate(official_names(), start=1)), _published_counts(root)
    return Inventory(base, list_folders(folders, TRAIN_CLASSES), names, counts, "" if counts else COUNTS_MISSING)


def _from_annotations(base: Path) -> Inventory:
    listed, class_names = _read_annotations(base / ANNOTATIONS)
    entries = (ListedImage(base / path, number, half_of(number, TRAIN_CLASSES)) for path, number in listed)
    return Inventory(base, tuple(entries), class_names)


def _published_counts(root: Path) -> dict[int, int]:
    """Count the images of each class by the annotations, if they lie beside the class folders."""
    file = next((base / ANNOTATIONS for base in places(root) if (base / ANNOTATIONS).is_file()), None)
    return {} if file is None else dict(Counter(number for _, number in _read_annotations(file)[0]))


def _read_annotations(file: Path) -> tuple[list[tuple[str, int]], dict[int, str]]:
    """Read `annotations`: per image with relative_im_path (car_ims/000001.jpg) and class; `class_names`: in order."""
    from scipy.io import loadmat  # takes a while to import, and no other data set needs it

    try:
        contents = loadmat(file, squeeze_me=True)
        annotations, names = np.atleast_1d(contents["annotations"]), np.atleast_1d(contents["class_names"])
        listed = [
            (str(path), int(number))
            for path, number in zip(annotations["relative_im_path"], annotations["class"], strict=True)
        ]
        class_names = {number: str(names[number - 1]) for number in sorted({number for _, number in listed})}
    except Exception as error:  # a damaged file fails in scipy wherever it happens to be damaged
        raise UserError(
            f"{file} cannot be read as the annotations of {TITLE} ({type(error).__name__}: {error}): get it again"
        ) from None
    return listed, class_names


@cache
def official_names() -> tuple[str, ...]:
    """List the 196 classes in the order of `cars_annos.mat`, which is not quite the alphabet's."""
    file = resources.files("ccp_dml.data.published") / "cars196_classes.txt"
    return tuple(file.read_text(encoding="utf-8").splitlines())


def class_number(folder: str) -> int | None:
    """Find the number 1..196 of a class's folder. Blanks and slashes, written in many ways, do not count."""
    return _numbers().get(_letters(folder)) or leading_number(folder, len(official_names()))


@cache
def _numbers() -> dict[str, int]:
    return {_letters(name): number for number, name in enumerate(official_names(), start=1)}


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


CARS196 = Published(
    name="cars196",
    title=TITLE,
    page="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    sizes=SIZES,
    files=(
        RemoteFile(
            "car_ims.tgz",
            urls=(
                "http://ai.stanford.edu/~jkrause/car196/car_ims.tgz",
                "http://imagenet.stanford.edu/internal/car196/car_ims.tgz",
            ),
            md5="d5c8f0aa497503f355e17dc7886c3f14",
        ),
        RemoteFile(
            ANNOTATIONS,
            urls=(
                "http://ai.stanford.edu/~jkrause/car196/cars_annos.mat",
                "http://imagenet.stanford.edu/internal/car196/cars_annos.mat",
            ),
            md5="b407c6086d669747186bd1d764ff9dbc",
        ),
    ),
    folder="cars196",
    layout=LAYOUT,
    survey=survey_of(read_cars196),
    read=read_cars196,
)
