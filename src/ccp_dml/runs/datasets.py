"""Build data sets by name, from the `data` section of a configuration, and divide them by the protocol."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from statistics import median

import torch

from ccp_dml.config.layers import naming_keys
from ccp_dml.config.schema import DataConfig, ProtocolConfig
from ccp_dml.data.features import load_features
from ccp_dml.data.files.csv_table import load_csv
from ccp_dml.data.files.folder import load_folder
from ccp_dml.data.files.health import shared_by_halves
from ccp_dml.data.files.images import ImageReading
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.own_set import own_halves
from ccp_dml.data.published.cars196 import CARS196
from ccp_dml.data.published.cub import CUB
from ccp_dml.data.published.inshop import INSHOP
from ccp_dml.data.published.mnist import MNIST, load_mnist
from ccp_dml.data.published.published_set import Published, load_published
from ccp_dml.data.published.sop import SOP
from ccp_dml.data.splits import HOLD_OUT
from ccp_dml.data.transforms import AUGMENTATIONS, Augmentation, eval_transform, train_transform
from ccp_dml.data.views import without_augmentation
from ccp_dml.errors import UserError, did_you_mean, listing
from ccp_dml.foundation import own_code
from ccp_dml.runs.arguments import construct_own

LoadData = Callable[[DataConfig], DataHalves]

SIDES_FROM_FILES = (32, 64)
"""Smallest and largest side that data.resize=files may come to: a network from scratch is small."""
SAMPLED_FILES = 50

CHANGEABLE = ("crop_area", "flip", "turn", "colour")
"""Parts of an augmentation that have a setting of their own."""

AUGMENTED_BY_THEMSELVES = ("glyphs", "mnist", "features")

PUBLISHED: dict[str, Published] = {published.name: published for published in (CUB, CARS196, SOP, INSHOP, MNIST)}
"""What `ccp data prepare` and `ccp data verify` know."""


@naming_keys("data")
def build_data(data: DataConfig) -> DataHalves:
    load = _own if own_code.is_own(data.name, own_code.DATASETS) else DATASETS.get(data.name)
    if load is None:
        raise UserError(
            f"data.name = {data.name!r} is no data set{did_you_mean(data.name, list(DATASETS))}; one of your own is "
            "named by its code, FILE.py:NAME."
        )
    if load is not _own:
        _refuse_arguments(data)
    refuse_unused_augmentation(data)
    halves = load(with_sizes(data))
    halves = halves if data.classes is None else first_classes(halves, data.classes)
    if data.augment != "none":
        return halves
    return without_augmentation(halves, None if data.name in AUGMENTED_BY_THEMSELVES else with_sizes(data).pixels[1])


@naming_keys("data")
def with_sizes(data: DataConfig) -> DataConfig:
    """Replace "files" in data.resize and data.crop by pixels, so that a saved configuration names them."""
    if data.resize != "files" and data.crop != "files":
        return data
    if data.name not in DATASETS or data.name in AUGMENTED_BY_THEMSELVES:
        has_own = data.name in AUGMENTED_BY_THEMSELVES
        remedy = "leave out the mode that asks for it" if has_own else "set data.resize and data.crop to pixels"
        raise UserError(f"data.resize=files is for a folder or table of images, not for {data.name}: {remedy}.")
    resize = side_of_files(data) if data.resize == "files" else data.resize
    return data.model_copy(update={"resize": resize, "crop": resize if data.crop == "files" else data.crop})


@lru_cache(maxsize=1)  # the runs of a benchmark share a data set
def side_of_files(data: DataConfig) -> int:
    """Measure the images' median short side on a sample, and keep it within what a small network can use."""
    least, most = SIDES_FROM_FILES
    source = DATASETS[data.name](data.model_copy(update={"resize": most, "crop": most})).train.source
    positions = torch.linspace(0, len(source) - 1, min(len(source), SAMPLED_FILES)).long()
    pictures = [source.picture(position) for position in positions.tolist()]
    side = median(min(picture.size) for picture in pictures if picture is not None)
    return min(max(int(side), least), most)


def refuse_unused_augmentation(data: DataConfig) -> None:
    """Raise if the augmentation that is asked for would change nothing."""
    given = [f"data.{name}" for name in CHANGEABLE if getattr(data, name) is not None]
    if data.name in AUGMENTED_BY_THEMSELVES:
        given = [*given, *(["data.augment=light"] if data.augment == "light" else [])]
        if given:
            raise UserError(
                f"{given[0]} is for image files, and {data.name} has an augmentation of its own or none: leave it out, "
                "or switch augmentation off with data.augment=none."
            )
    elif data.augment == "none" and given:
        raise UserError(f"{given[0]} is set, but data.augment=none changes no image: set data.augment=light or mlrc.")


def remember_last(load: LoadData) -> LoadData:
    """Keep the last data set: they are large, and runs mostly share one."""
    kept: dict[DataConfig, DataHalves] = {}

    def remembered(data: DataConfig) -> DataHalves:
        if data not in kept:
            kept.clear()
            kept[data] = load(data)
        return kept[data]

    return remembered


def first_classes(halves: DataHalves, count: int) -> DataHalves:
    """Keep the first `count` classes of each half, or all if there are fewer."""

    def kept(part: LabelledSet) -> LabelledSet:
        return part.of_classes(range(min(count, len(part.class_names))))

    return replace(halves, train=kept(halves.train), test=halves.test.changed(kept))


def _folder(data: DataConfig) -> DataHalves:
    root = _given(data, "root", "the folder with one subfolder per class")
    halves = load_folder(root, _reading(data), data.test_share)
    return _with_duplicates_told(halves, data)


def _csv(data: DataConfig) -> DataHalves:
    halves = load_csv(
        _given(data, "path", "the CSV file"),
        _reading(data),
        root=data.root,
        test_share=data.test_share,
        split_column=data.split_column,
    )
    return _with_duplicates_told(halves, data)


def _with_duplicates_told(halves: DataHalves, data: DataConfig) -> DataHalves:
    """Note, or refuse, images that stand in both halves under different names."""
    shared = shared_by_halves(halves)
    if not shared:
        return halves
    told = (
        f"{len(shared)} test images are copies of training images, so that scores may be too good: "
        f"{listing([f'{test} of {train}' for train, test in shared], limit=3)}"
    )
    if data.duplicates == "refuse":
        raise UserError(f"{told}; remove them, or set data.duplicates=tell.")
    return replace(halves, notes=(*halves.notes, told))


def _features(data: DataConfig) -> DataHalves:
    path = _given(data, "path", "an .npz file with features and labels")
    return load_features(path, drop_small_classes=data.drop_small_classes, test_share=data.test_share)


def _images(data: DataConfig) -> DataHalves:
    cached_side = data.pixels[0] if data.cached else None
    return load_published(PUBLISHED[data.name], _prepared_root(data), _reading(data), cached_side)


def _own(data: DataConfig) -> DataHalves:
    """Build a data set of the user's own; `root` and `path`, where they are set, go to its constructor."""
    filled = {key: value for key in ("root", "path") if (value := getattr(data, key)) is not None}
    built = construct_own(data.name, own_code.DATASETS, dict(data.args), "data.args.", "data set", filled=filled)
    import_code = partial(own_code.load, data.name, own_code.DATASETS)
    return own_halves(built, _reading(data), origin=data.name, import_code=import_code, test_share=data.test_share)


def _refuse_arguments(data: DataConfig) -> None:
    if data.args:
        raise UserError(
            f"data.args.{data.args[0][0]} is set, but the data set {data.name!r} takes no such arguments; only data "
            "sets of your own do (data.name=FILE.py:NAME)."
        )


def _prepared_root(data: DataConfig) -> str:
    return _given(data, "root", f"its folder (see `ccp data prepare {data.name}`)")


def _given(data: DataConfig, key: str, what: str) -> str:
    value: str | None = getattr(data, key)
    if value is None:
        raise UserError(f"data.{key} is not set: the data set {data.name!r} needs {what}, --set data.{key}=PATH.")
    return value


def _reading(data: DataConfig) -> ImageReading:
    resize, crop = data.pixels
    return ImageReading(
        train_transform(resize, crop, _augmentation(data)),
        eval_transform(resize, crop),
        decoded_side=resize if data.reduced_decoding else None,
        skip_broken=data.skip_broken,
        drop_small_classes=data.drop_small_classes,
    )


def _augmentation(data: DataConfig) -> Augmentation:
    """Take the named augmentation, with what the user set otherwise; with "none" it stays unused."""
    given = {name: getattr(data, name) for name in CHANGEABLE}
    named = AUGMENTATIONS["mlrc" if data.augment == "none" else data.augment]
    return replace(named, **{name: value for name, value in given.items() if value is not None})


DATASETS: dict[str, LoadData] = {
    "glyphs": lambda _: load_glyphs(),
    "folder": _folder,
    "csv": _csv,
    "features": _features,
    **dict.fromkeys(("cub", "cars196", "sop", "inshop"), _images),
    "mnist": lambda data: load_mnist(_prepared_root(data)),
}


@naming_keys("protocol")
def classes_to_learn_and_to_select_on(protocol: ProtocolConfig, halves: DataHalves) -> tuple[LabelledSet, TestSet]:
    """Divide the training half: classes to learn from, and classes to choose the best evaluation on (D27).

    The only line that lets the test half into training is the one for those who ask for it (D28).
    """
    if protocol.select_on == "test":
        return halves.train, halves.test
    learned, held_out = HOLD_OUT[protocol.hold_out](halves.train, protocol.fold, protocol.folds)
    return learned, TestSet(held_out)
