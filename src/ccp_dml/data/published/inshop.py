"""In-shop Clothes Retrieval of DeepFashion: articles photographed several times; queries search a gallery."""

from pathlib import Path

from ccp_dml.data.files.class_folders import class_folders, images_below, places
from ccp_dml.data.published.downloads import RemoteFile
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize, read_rows
from ccp_dml.data.published.published_set import Published, not_found, survey_of

SIZES = {
    "train": SplitSize(3_997, 25_882),
    "query": SplitSize(3_985, 14_218),
    "gallery": SplitSize(3_985, 12_612),
}
TITLE = "In-shop Clothes Retrieval"
LAYOUT = (
    "either Eval/list_eval_partition.txt and the images in Img/img/ (img.zip unpacked) or img/, "
    "or train/, query/ and gallery/ with one folder per article each (id_00000001, ...)"
)
LIST = "list_eval_partition.txt"
LIST_FOLDERS = ("Eval", "Anno", "")
IMAGE_FOLDERS = ("Img", "")  # above img/, with which the listed paths begin


def read_inshop(root: Path) -> Inventory:
    # The list may lie in two places, once beside the packed images: where there are unpacked ones, it counts.
    listed = [(base, file) for base in places(root) if (file := _find_list(base)) is not None]
    if listed:
        return _from_list(*min(listed, key=lambda found: _find_images(found[0]) is None))
    for base in places(root):
        found = {split: class_folders(base / split, _article_number) for split in SIZES}
        if all(found.values()):
            entries = [
                ListedImage(path, number, split)
                for split, folders in found.items()
                for number, folder in folders
                for path in images_below(folder)
            ]
            names = {number: folder.name for folders in found.values() for number, folder in folders}
            return Inventory(base, tuple(entries), names)
    raise not_found(root, TITLE, LAYOUT)


def _find_list(base: Path) -> Path | None:
    return next((file for folder in LIST_FOLDERS if (file := base / folder / LIST).is_file()), None)


def _find_images(base: Path) -> Path | None:
    return next((base / folder for folder in IMAGE_FOLDERS if (base / folder / "img").is_dir()), None)


def _from_list(base: Path, file: Path) -> Inventory:
    """Read `image_name item_id evaluation_status` below the number of images and a line with these words."""
    images = _find_images(base) or base / IMAGE_FOLDERS[0]
    entries = []
    names: dict[int, str] = {}
    for path, number, split in read_rows(file, str, _listed_article, _listed_split, header=2):
        entries.append(ListedImage(images / path, number, split))
        names.setdefault(number, f"id_{number:08}")
    return Inventory(base, tuple(entries), names)


def _listed_article(name: str) -> int:
    if (number := _article_number(name)) is None:
        raise ValueError(name)
    return number


def _listed_split(name: str) -> str:
    if name not in SIZES:
        raise ValueError(name)
    return name


def _article_number(name: str) -> int | None:
    """Read 17 from `id_00000017`."""
    digits = name.removeprefix("id_")
    return int(digits) if digits != name and digits.isdigit() else None


INSHOP = Published(
    name="inshop",
    title=TITLE,
    page="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    sizes=SIZES,
    files=(RemoteFile("img.zip", place="Img"), RemoteFile(LIST, place="Eval")),
    folder="inshop",
    layout=LAYOUT,
    survey=survey_of(read_inshop),
    read=read_inshop,
    behind_a_form=True,
)
