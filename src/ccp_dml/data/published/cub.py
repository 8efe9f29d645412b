"""CUB-200-2011: 200 species of birds; the first 100 train, the last 100 test."""

from functools import partial
from pathlib import Path

from ccp_dml.data.class_folders import class_folders, images_below, leading_number, places
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize, read_rows
from ccp_dml.data.published.published_set import Published, load_published, not_found, survey_of
from ccp_dml.errors import UserError

CLASSES = 200
TRAIN_CLASSES = 100
SIZES = {"train": SplitSize(100, 5_864), "test": SplitSize(100, 5_924)}
TITLE = "CUB-200-2011"
LAYOUT = (
    "either images/ with images.txt, classes.txt and image_class_labels.txt, "
    "or one folder per class under its official name (001.Black_footed_Albatross, ...)"
)
MOST = 60
FEWER = {
    3: 58,
    5: 44,
    6: 41,
    7: 53,
    8: 48,
    9: 59,
    12: 56,
    15: 58,
    16: 58,
    17: 57,
    18: 45,
    19: 59,
    20: 59,
    22: 56,
    23: 59,
    24: 52,
    28: 59,
    32: 53,
    33: 59,
    34: 59,
    37: 59,
    39: 59,
    43: 59,
    58: 58,
    60: 59,
    65: 50,
    75: 57,
    78: 59,
    84: 53,
    97: 59,
    101: 50,
    105: 49,
    107: 59,
    113: 50,
    115: 59,
    117: 59,
    119: 59,
    124: 59,
    125: 59,
    126: 59,
    135: 59,
    141: 58,
    149: 59,
    151: 51,
    153: 59,
    157: 59,
    160: 59,
    166: 59,
    168: 59,
    169: 59,
    178: 56,
    179: 59,
    181: 59,
    187: 50,
    190: 58,
    196: 59,
}
"""Most classes have 60 images; these have fewer. Folders without the lists are held against these numbers."""

LISTS = ("images.txt", "classes.txt", "image_class_labels.txt")


def read_cub(root: Path) -> Inventory:
    for base in places(root):
        if all((base / name).is_file() for name in LISTS):
            return _from_lists(base)
    for place in places(root):
        for base, within in ((place, ("",)), (place / "images", ("",)), (place, ("train", "test"))):
            if folders := class_folders(base, _class_number, within):
                entries = [
                    ListedImage(path, number, _split(number))
                    for number, folder in folders
                    for path in images_below(folder)
                ]
                names = {number: folder.name for number, folder in folders}
                return Inventory(base, tuple(entries), names, published_counts())
    raise not_found(root, TITLE, LAYOUT)


def _from_lists(base: Path) -> Inventory:
    """Read images.txt: `image path`; image_class_labels.txt: `image class`; classes.txt: `class name`."""
    names = dict(read_rows(base / "classes.txt", int, str))
    class_of = dict(read_rows(base / "image_class_labels.txt", int, int))
    images = read_rows(base / "images.txt", int, str)
    try:
        numbers = [class_of[image] for image, _ in images]
        known = {number: names[number] for number in sorted(set(numbers))}
    except KeyError as error:
        raise UserError(f"the lists {', '.join(LISTS)} in {base} do not fit together: no entry for {error}") from None
    entries = (
        ListedImage(base / "images" / path, number, _split(number))
        for number, (_, path) in zip(numbers, images, strict=True)
    )
    return Inventory(base, tuple(entries), known)


def published_counts() -> dict[int, int]:
    """Count the published images of each class."""
    return {number: FEWER.get(number, MOST) for number in range(1, CLASSES + 1)}


def _class_number(name: str) -> int | None:
    return leading_number(name, CLASSES)


def _split(number: int) -> str:
    return "train" if number <= TRAIN_CLASSES else "test"


CUB = Published(
    name="cub",
    title=TITLE,
    page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    sizes=SIZES,
    files=(
        RemoteFile(
            "CUB_200_2011.tgz",
            urls=(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                "https://s3.amazonaws.com/fast-ai-imageclas/CUB_200_2011.tgz",
                "http://www.vision.caltech.edu/visipedia-data/CUB-200-2011/CUB_200_2011.tgz",
            ),
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
        ),
    ),
    folder="CUB_200_2011",
    layout=LAYOUT,
    survey=survey_of(read_cub),
    read=read_cub,
)

load_cub = partial(load_published, CUB)
"""load_cub(root, train_transform, eval_transform, *, skip_broken=False, ...) -> DataHalves"""
