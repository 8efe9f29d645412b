"""Which classes train, validate and test."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import torch

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.errors import UserError

_INTEGER = re.compile(r"[+-]?[0-9]+")


def order_classes(names: Iterable[str]) -> list[str]:
    """The distinct names in the order that defines class ids: numerically if all are integers, otherwise by text."""
    distinct = sorted(set(names))
    if all(_INTEGER.fullmatch(name) for name in distinct):
        distinct.sort(key=int)
    return distinct


def halve_classes(num_classes: int) -> tuple[list[int], list[int]]:
    """Ids of the classes that train (the first half, the larger one if the number is odd) and of those that test."""
    first = (num_classes + 1) // 2
    return list(range(first)), list(range(first, num_classes))


def class_quarters(num_classes: int, folds: int = 4) -> list[list[int]]:
    """Class ids in `folds` contiguous parts, whose sizes differ by one at most."""
    borders = [num_classes * part // folds for part in range(folds + 1)]
    return [list(range(begin, end)) for begin, end in pairwise(borders)]


def fold_split(train: LabelledSet, fold: int, folds: int = 4) -> tuple[LabelledSet, LabelledSet]:
    """The part of the training half to learn from, and part `fold` (0..folds-1) of its classes to validate on."""
    num_classes = len(train.class_names)
    _refuse_wrong_fold(fold, folds)
    if num_classes < 2 * folds:  # among the images of a single class every retrieval is right, and there is no score
        raise UserError(
            f"{num_classes} training classes are too few for protocol.folds={folds}, as each fold needs at least two: "
            "use fewer folds, or add classes"
        )
    validation = class_quarters(num_classes, folds)[fold]
    learned = [c for c in range(num_classes) if not validation[0] <= c <= validation[-1]]
    return train.of_classes(learned), train.of_classes(validation)


def hold_out_images(train: LabelledSet, fold: int, folds: int = 4) -> tuple[LabelledSet, LabelledSet]:
    """The images to learn from, and part `fold` (0..folds-1) of every class's images to validate on.

    For data whose classes both train and test, as MNIST's digits do. The parts of a class are contiguous in the order
    of the data set, and their sizes differ by one at most.
    """
    _refuse_wrong_fold(fold, folds)
    held_out = torch.zeros(len(train), dtype=torch.bool)
    for number, name in enumerate(train.class_names):
        rows = (train.labels == number).nonzero().flatten()
        if len(rows) < 2 * folds:  # a part of one image finds nothing of its class
            raise UserError(
                f"class {name} has {len(rows)} training images, too few to hold out a part for protocol.folds={folds}, "
                "as each part needs at least two: use fewer folds, or add images"
            )
        held_out[rows[len(rows) * fold // folds : len(rows) * (fold + 1) // folds]] = True
    return _rows(train, ~held_out), _rows(train, held_out)


def _rows(data: LabelledSet, chosen: torch.Tensor) -> LabelledSet:
    """The `chosen` (N,) rows; all classes stay."""
    return replace(data, positions=data.positions[chosen], labels=data.labels[chosen])


HOLD_OUT = {"classes": fold_split, "images": hold_out_images}
"""What `protocol.hold_out` can be."""


def _refuse_wrong_fold(fold: int, folds: int) -> None:
    if folds < 2:
        raise UserError(f"protocol.folds={folds} leaves no classes to validate on: set it to 2 or more")
    if not 0 <= fold < folds:
        raise UserError(f"protocol.fold={fold} is out of range: choose 0 to {folds - 1} for protocol.folds={folds}")
