"""CUB-200-2011: 200 species of birds; the first 100 train, the last 100 test."""

from pathlib import Path

from ccp_dml.data.files.class_folders import find_class_folders, leading_number, places
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize, half_of, list_folders, read_rows
from ccp_dml.data.published.published_set import Published, not_found, survey_of
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
    59: "9 19 20 23 28 33 34 37 39 43 60 78 97 107 115 117 119 124 125 126 135 149 153 157 160 166 168 169 179 181 196",
    58: "3 15 16 58 141 190",
    57: "17 75",
    56: "12 22 178",
    53: "7 32 84",
    52: "24",
    51: "151",
    50: "65 101 113 187",
    49: "105",
    48: "8",
    45: "18",
    44: "5",
    41: "6",
}
"""Most classes have 60 images; these, by their numbers, have fewer. Folders without lists are held against that."""

LISTS = ("images.txt", "classes.txt", "image_class_labels.txt")


def read_cub(root: Path) -> Inventory:
    for base in places(root):
        if all((base / name).is_file() for name in LISTS):
            return _from_lists(base)
    if (found := find_class_folders(root, _class_number, ("", "images"))) is None:
        raise not_found(root, TITLE, LAYOUT)
    base, folders = found
    names = {number: folder.name for number, folder in folders}
    return Inventory(base, list_folders(folders, TRAIN_CLASSES), names, published_counts())


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
        ListedImage(base / "images" / path, number, half_of(number, TRAIN_CLASSES))
        for number, (_, path) in zip(numbers, images, strict=True)
    )
    return Inventory(base, tuple(entries), known)


def published_counts() -> dict[int, int]:
    """Count the published images of each class."""
    fewer = {int(number): count for count, numbers in FEWER.items() for number in numbers.split()}
    return {number: fewer.get(number, MOST) for number in range(1, CLASSES + 1)}


def _class_number(name: str) -> int | None:
    return leading_number(name, CLASSES)


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
