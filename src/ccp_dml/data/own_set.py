"""Data sets of a user's own: anything that gives items with their labels, as torch's and torchvision's data sets do."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.files.images import ImageReading, picture_of, reason_of
from ccp_dml.data.labelled import DataHalves, Source
from ccp_dml.data.splits import SPLITS, divide, refuse_share
from ccp_dml.data.transforms import ImageTransform, apply_seeded
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.digests import digest


class OwnImages:
    """Images of a user's data set, whose items are asked for one by one.

    Args:
        data: `data[i]` is an image or a pair (image, label). An image is a path, a PIL image or a uint8 array (H, W) or
            (H, W, 3). `data.names`, if it is there, names the items for people.
        train_transform: makes a random view of an image's pixels.
        eval_transform: makes the view that evaluations see.
        origin: what messages call the data set.
        import_code: imports the code of the data set in a process that is started anew.
    """

    in_memory = False

    def __init__(
        self,
        data: Any,
        train_transform: ImageTransform,
        eval_transform: ImageTransform,
        origin: str,
        import_code: Callable[[], object],
    ) -> None:
        self.data, self.origin = data, origin
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._import_code = import_code

    def __len__(self) -> int:
        return len(self.data)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        images = (pil_to_tensor(self.picture(position)) for position in positions.tolist())
        if seeds is None:
            return torch.stack([self._eval_transform(image) for image in images])
        return torch.stack(apply_seeded(self._train_transform, images, seeds.tolist()))

    def name(self, position: int) -> str:
        names = getattr(self.data, "names", None)
        return f"item {position}" if names is None else str(names[position])

    def picture(self, position: int) -> Image.Image:
        try:
            return picture_of(first_of(self.data[position]))
        except Exception as error:
            raise UserError(f"item {position} of {self.origin} is no image ({reason_of(error)}): repair it") from error

    def signature(self, positions: Tensor) -> str:
        pixels = (np.asarray(self.picture(position)) for position in positions.tolist())
        contents = [digest(f"{one.shape}", one.tobytes()) for one in pixels]
        return digest(repr(self._train_transform), repr(self._eval_transform), *contents)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that loads images knows the class of `data` only after its code was imported there.
        state = (self.data, self._train_transform, self._eval_transform, self.origin)
        return _imported, (self._import_code, pickle.dumps(state))


def _imported(import_code: Callable[[], object], state: bytes) -> OwnImages:
    import_code()
    data, train_transform, eval_transform, origin = pickle.loads(state)  # what this program has just pickled itself
    return OwnImages(data, train_transform, eval_transform, origin, import_code)


def first_of(item: Any) -> Any:
    """Take the image out of a pair (image, label)."""
    return item[0] if isinstance(item, tuple | list) else item


def own_halves(
    data: Any,
    reading: ImageReading,
    *,
    origin: str,
    import_code: Callable[[], object] = lambda: None,
    test_share: float = 0.5,
) -> DataHalves:
    """Divide a user's data set into halves.

    Args:
        data: `DataHalves`, which are taken as they are, or a data set with `len(data)`, `data[i]` (see `OwnImages`; a
            vector of floating-point numbers in place of an image is taken as features), `data.targets`, the label of
            every item, and optionally `data.split`, "train" or "test" for every item.
        reading: transforms for its images, and what to do about small classes.
        origin: what messages call it.
        import_code: see `OwnImages`.
        test_share: without `split`, the part of the sorted classes that tests, the last ones.
    """
    if isinstance(data, DataHalves):
        refuse_share(origin, "item", test_share)
        return data
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise UserError(f"{origin} is no data set but {type(data).__name__}: it needs __len__ and __getitem__")
    labels, split = _labels(data, origin), _split(data, origin)
    if not len(data):
        raise UserError(f"{origin} is empty: it has no items")
    sample = first_of(data[0])
    source: Source
    if _is_vector(sample):
        source, item = FeatureRows(_rows(data, len(sample), origin)), "row"
    else:
        source, item = OwnImages(data, reading.train_transform, reading.eval_transform, origin, import_code), "item"
        source.picture(0)  # raises if it is no image
    return divide(
        source,
        labels,
        split,
        origin=origin,
        item=item,
        drop_small_classes=reading.drop_small_classes,
        test_share=test_share,
    )


def _is_vector(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.ndim == 1 and item.is_floating_point()
    return isinstance(item, np.ndarray) and item.ndim == 1 and item.dtype.kind == "f"


def _rows(data: Any, dimensions: int, origin: str) -> Tensor:
    """Read all vectors (N, dimensions), in single precision."""
    rows = torch.empty(len(data), dimensions)
    for number in range(len(data)):
        item = first_of(data[number])
        if not _is_vector(item) or len(item) != dimensions:
            found = f"shape {tuple(item.shape)}" if hasattr(item, "shape") else f"type {type(item).__name__}"
            raise UserError(
                f"item {number} of {origin} is of {found}, but item 0 is a vector of {dimensions} floating-point "
                "numbers: all items must be alike"
            )
        rows[number] = torch.as_tensor(item).detach()
        if not rows[number].isfinite().all():
            raise UserError(f"item {number} of {origin} has NaN or infinite values: repair or remove it")
    return rows


def _labels(data: Any, origin: str) -> list[str]:
    targets = getattr(data, "targets", None)
    if targets is None:
        raise UserError(f"{origin} has no attribute `targets`: it must hold the label of every item, in their order")
    labels = [str(value) for value in _plain(targets)]
    if len(labels) != len(data):
        raise UserError(f"{origin} has {len(data)} items but {len(labels)} targets: there must be one for each")
    return labels


def _split(data: Any, origin: str) -> list[str] | None:
    split = getattr(data, "split", None)
    if split is None or isinstance(split, str):  # torchvision's sets keep there which part of them was asked for
        return None
    found = [str(value) for value in _plain(split)]
    if len(found) != len(data):
        raise UserError(f"{origin} has {len(data)} items but {len(found)} entries of split: there must be one for each")
    if odd := sorted(set(found) - set(SPLITS)):
        raise UserError(f"{origin} has split {listing([repr(one) for one in odd])}: it must be 'train' or 'test'")
    return found


def _plain(values: Any) -> Sequence[Any]:
    """List the values of an array, a tensor or a list, whose items may be tensors or arrays of one number."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.item() if isinstance(value, Tensor | np.ndarray) and value.ndim == 0 else value for value in listed]
