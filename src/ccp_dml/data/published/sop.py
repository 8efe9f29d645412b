"""Stanford Online Products: 22,634 articles of an auction house; which of them train is listed."""

from pathlib import Path

from ccp_dml.data.files.class_folders import find_class_folders, leading_number, places
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize, list_folders, read_rows
from ccp_dml.data.published.published_set import Published, not_found, survey_of

CLASSES = 22_634
TRAIN_CLASSES = 11_318
SIZES = {"train": SplitSize(11_318, 59_551), "test": SplitSize(11_316, 60_502)}
TITLE = "Stanford Online Products"
LAYOUT = (
    "either Ebay_train.txt and Ebay_test.txt beside bicycle_final/, cabinet_final/, ..., "
    f"or one folder per class called by its class_id (1 to {CLASSES}, the first {TRAIN_CLASSES} train)"
)
LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def read_sop(root: Path) -> Inventory:
    for base in places(root):
        if all((base / name).is_file() for name in LISTS.values()):
            return _from_lists(base)
    if (found := find_class_folders(root, _class_number)) is None:
        raise not_found(root, TITLE, LAYOUT)
    base, folders = found
    return Inventory(base, list_folders(folders, TRAIN_CLASSES), {number: folder.name for number, folder in folders})


def _from_lists(base: Path) -> Inventory:
    """Read `image_id class_id super_class_id path` below a line with these words; images name an article."""
    entries: list[ListedImage] = []
    names: dict[int, str] = {}
    for split, name in LISTS.items():
        for _, number, _, path in read_rows(base / name, int, int, int, str, header=1):
            entries.append(ListedImage(base / path, number, split))
            names.setdefault(number, path.rpartition("_")[0] or path)  # bicycle_final/111085122871_0.JPG
    return Inventory(base, tuple(entries), names)


def _class_number(name: str) -> int | None:
    return leading_number(name, CLASSES) if name.isdigit() else None


SOP = Published(
    name="sop",
    title=TITLE,
    page="https://cvgl.stanford.edu/projects/lifted_struct/",
    sizes=SIZES,
    files=(
        RemoteFile(
            "Stanford_Online_Products.zip",
            urls=(
                "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                "ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
            ),
            md5="7f73d41a2f44250d4779881525aea32e",
        ),
    ),
    folder="Stanford_Online_Products",
    layout=LAYOUT,
    survey=survey_of(read_sop),
    read=read_sop,
)
