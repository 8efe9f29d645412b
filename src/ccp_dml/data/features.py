"""Precomputed feature vectors in an `.npz` file: train a head without the backbone."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.splits import SPLITS, divide
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import tensor_digest

UNREADABLE = (OSError, EOFError, RuntimeError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)
"""What numpy raises of a damaged .npz file, besides a ValueError; RuntimeError for a compression that nobody knows."""


class FeatureRows:
    """Feature vectors (N, F) in memory. There is no augmentation, so seeds change nothing."""

    in_memory = True

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:  # noqa: ARG002 seeds belong to every source
        return self.features[positions]

    def name(self, position: int) -> str:
        return f"row {position}"

    def picture(self, position: int) -> Image.Image | None:  # noqa: ARG002 there is nothing to see in any row
        return None

    def signature(self, positions: Tensor) -> str:
        return tensor_digest([("features", self.features[positions])])


def load_features(path: str | Path, *, drop_small_classes: bool = False, test_share: float = 0.5) -> DataHalves:
    """Read `features` (N, F) float, `labels` (N,) integer or string, and optionally `split` (N,) of train/test.

    Without `split`, the last `test_share` of the sorted classes test. Rows are counted from 0, as numpy does.
    """
    path = Path(path).expanduser()
    arrays = _read(path)
    features, labels, split = _features(path, arrays), _labels(path, arrays), None
    if len(labels) != len(features):
        raise UserError(
            f"{path} has {len(features)} rows of features but {len(labels)} labels: they must be of equal length"
        )
    if "split" in arrays:
        split = _split(path, arrays)
        if len(split) != len(features):
            raise UserError(
                f"{path} has {len(features)} rows of features but {len(split)} entries of split: "
                "they must be of equal length"
            )
    return divide(
        FeatureRows(features),
        labels,
        split,
        origin=str(path),
        item="row",
        drop_small_classes=drop_small_classes,
        test_share=test_share,
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"there is no features file {path}: set `path` to an .npz file")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, *UNREADABLE) as error:
        table = "; for a table of images, name `csv` in place of `features`" if path.suffix.lower() == ".csv" else ""
        raise UserError(
            f"{path} is not an .npz file: write it with numpy.savez(path, features=..., labels=...){table}"
        ) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise UserError(
            f"{path} holds a single array: write an .npz file with numpy.savez(path, features=..., labels=...)"
        )
    with archive:
        for name in ("features", "labels"):
            if name not in archive:
                found = ", ".join(archive.files) or "nothing"
                raise UserError(f"{path} has no array {name!r} (found: {found}): write it with numpy.savez")
        return {name: _array(path, archive, name) for name in ("features", "labels", "split") if name in archive}


def _array(path: Path, archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    try:
        array = archive[name]
    except ValueError as error:  # numpy refuses pickles, which could run any code
        raise UserError(
            f"array {name!r} of {path} is not one of plain numbers or strings ({error}): convert it before saving, "
            f"as in {name}={name}.astype({'float' if name == 'features' else 'str'})"
        ) from error
    except UNREADABLE as error:
        raise UserError(f"array {name!r} of {path} cannot be read ({error}): write the file again") from error
    if not isinstance(array, np.ndarray):
        raise UserError(f"{name!r} of {path} is not an array: write the file with numpy.savez")
    return array


def _features(path: Path, arrays: dict[str, np.ndarray]) -> Tensor:
    features = arrays["features"]
    if features.ndim != 2 or 0 in features.shape:
        raise UserError(f"features of {path} have shape {features.shape}: they must be (rows, dimensions), not empty")
    if features.dtype.kind != "f":
        raise UserError(f"features of {path} are of type {features.dtype}: save them as float32")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite and is named below
        vectors = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise UserError(
            f"features of {path} have NaN or infinite values in {int((~finite).sum())} row(s), first in row {row}: "
            "repair or remove them"
        )
    return vectors


def _labels(path: Path, arrays: dict[str, np.ndarray]) -> list[str]:
    if arrays["labels"].dtype.kind not in "iuUS":
        raise UserError(f"labels of {path} are of type {arrays['labels'].dtype}: they must be integers or strings")
    return _strings(path, "labels", arrays["labels"])


def _split(path: Path, arrays: dict[str, np.ndarray]) -> list[str]:
    split = _strings(path, "split", arrays["split"])
    for row, value in enumerate(split):
        if value not in SPLITS:
            raise UserError(f"split of {path} is {value!r} in row {row}: it must be 'train' or 'test'")
    return split


def _strings(path: Path, name: str, array: np.ndarray) -> list[str]:
    if array.ndim != 1:
        raise UserError(f"{name} of {path} have shape {array.shape}: they must have one dimension, one entry per row")
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name} of {path} are not valid UTF-8 ({error}): save them as strings") from None
    return [str(value) for value in array.tolist()]
