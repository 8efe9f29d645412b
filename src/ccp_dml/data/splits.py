"""Decide which classes train, validate and test, and divide a data set accordingly."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from ccp_dml.data.labelled import DataHalves, LabelledSet, Source, TestSet
from ccp_dml.errors import UserError, is_text, listing

LEAST_CLASSES = 4
"""Fewer training classes cannot be divided: two to learn from, two to validate on. Images of each validate then."""

LEAST_IMAGES = 4
"""Fewer images of a class cannot be divided either."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


def order_classes(names: Iterable[str]) -> list[str]:
    """Sort the distinct names into the order of class ids: numerically if all are integers, otherwise by text."""
    distinct = sorted(set(names))
    if all(_INTEGER.fullmatch(name) for name in distinct):
        distinct.sort(key=int)
    return distinct


def halve_classes(num_classes: int, test_share: float = 0.5) -> tuple[list[int], list[int]]:
    """Divide class ids: the first ones train, the last `test_share` of them test.

    By default those are halves, the first one being larger if the number is odd. A share above 0 is one class at least.
    """
    wanted = round(num_classes * test_share, 6)  # 100 * 0.29 is a little less than 29
    testing = max(1, int(wanted)) if test_share > 0 else 0
    return list(range(num_classes - testing)), list(range(num_classes - testing, num_classes))


def class_quarters(num_classes: int, folds: int = 4) -> list[list[int]]:
    """Divide class ids into `folds` contiguous parts, whose sizes differ by one at most."""
    borders = [num_classes * part // folds for part in range(folds + 1)]
    return [list(range(begin, end)) for begin, end in pairwise(borders)]


def fold_split(train: LabelledSet, fold: int, folds: int = 4) -> tuple[LabelledSet, LabelledSet]:
    """Hold out part `fold` (0..folds-1) of the training classes: what to learn from, and what to validate on."""
    num_classes = len(train.class_names)
    _refuse_wrong_fold(fold, folds)
    if num_classes < 2 * folds:  # among the images of a single class every retrieval is right, and there is no score
        raise UserError(
            f"{num_classes} training classes are too few for `folds`={folds}, as each fold needs at least two: "
            f"{'use fewer folds, or add classes' if folds > 2 else 'add classes, or set `hold_out`=images'}"
        )
    validation = class_quarters(num_classes, folds)[fold]
    learned = [c for c in range(num_classes) if not validation[0] <= c <= validation[-1]]
    return train.of_classes(learned), train.of_classes(validation)


def hold_out_images(train: LabelledSet, fold: int, folds: int = 4) -> tuple[LabelledSet, LabelledSet]:
    """Hold out part `fold` (0..folds-1) of every class's images: what to learn from, and what to validate on.

    For data whose classes both train and test, as MNIST's digits do. The parts of a class are contiguous in the order
    of the data set, and their sizes differ by one at most.
    """
    _refuse_wrong_fold(fold, folds)
    held_out = torch.zeros(len(train), dtype=torch.bool)
    for number, name in enumerate(train.class_names):
        rows = (train.labels == number).nonzero().flatten()
        if len(rows) < 2 * folds:  # a part of one image finds nothing of its class
            raise UserError(
                f"class {name} has {len(rows)} training images, too few to hold out a part for `folds`={folds}, "
                f"as each part needs at least two: {'use fewer folds, or add images' if folds > 2 else 'add images'}"
            )
        held_out[rows[len(rows) * fold // folds : len(rows) * (fold + 1) // folds]] = True
    return _rows(train, ~held_out), _rows(train, held_out)


def hold_out_nothing(train: LabelledSet, fold: int, folds: int = 4) -> tuple[LabelledSet, LabelledSet]:
    """Learn from everything; what is watched is a fold of the same images, whose scores promise nothing."""
    _refuse_wrong_fold(fold, folds)
    enough = len(train.class_names) >= 2 * folds
    return train, train.of_classes(class_quarters(len(train.class_names), folds)[fold]) if enough else train


def everything_trains(halves: DataHalves) -> DataHalves:
    """Move the test half into the training half; a class that is in both is one class."""
    parts = halves.sets()
    if any(part.source is not halves.train.source for part in parts):
        raise UserError(
            "the halves of this data set are kept apart, so that they cannot train together: use `hold_out`=classes or "
            "images"
        )
    names = order_classes(name for part in parts for name in part.class_names)
    number = {name: c for c, name in enumerate(names)}
    labels = [
        torch.tensor([number[name] for name in part.class_names], dtype=torch.int64)[part.labels] for part in parts
    ]
    positions = torch.cat([part.positions for part in parts])
    train = LabelledSet(halves.train.source, positions, torch.cat(labels), tuple(names))
    nothing = LabelledSet(halves.train.source, positions[:0], positions[:0], ())
    return replace(halves, train=train, test=TestSet(nothing))


def _rows(data: LabelledSet, chosen: torch.Tensor) -> LabelledSet:
    """Select the `chosen` (N,) rows; all classes stay."""
    return replace(data, positions=data.positions[chosen], labels=data.labels[chosen])


HOLD_OUT = {"classes": fold_split, "images": hold_out_images, "nothing": hold_out_nothing}
"""What to hold out for validation: some of the classes, some images of every class, or nothing."""


def _refuse_wrong_fold(fold: int, folds: int) -> None:
    if folds < 2:
        raise UserError(f"`folds`={folds} leaves no classes to validate on: set it to 2 or more")
    if not 0 <= fold < folds:
        raise UserError(f"`fold`={fold} is out of range: choose 0 to {folds - 1} for `folds`={folds}")


SPLITS = ("train", "test")


def divide(
    source: Source,
    labels: Sequence[str],
    splits: Sequence[str] | None,
    *,
    origin: str,
    item: str = "image",
    drop_small_classes: bool = False,
    test_share: float = 0.5,
    notes: Sequence[str] = (),
) -> DataHalves:
    """Divide a source's items into halves by their `labels` (N,) and `splits` (N,), each "train" or "test".

    Without `splits`, the first of the sorted classes train, and the last `test_share` of them test; with a share of 0,
    nothing does. `origin` names the data in errors.
    A training class of one item cannot be learned from: it is an error, or left out with `drop_small_classes`. A test
    class of one item stays, as a wrong answer for others.
    """
    notes = list(notes)
    if not labels:
        raise UserError(f"{origin} has no {item}s that can be read ({'; '.join(notes)}): add some")
    for name in dict.fromkeys(labels):
        if not is_text(name):
            raise UserError(f"{origin} has a class whose name is not valid UTF-8 ({name!a}): rename it")
    is_given = splits is not None
    if is_given:
        refuse_share(origin, item, test_share)
    can_all_train = not is_given and test_share > 0 and sum(size > 1 for size in Counter(labels).values()) > 1
    splits = splits if splits is not None else _halved(labels, origin, test_share)
    names = {half: [n for n, split in zip(labels, splits, strict=True) if split == half] for half in SPLITS}
    train_sizes, test_sizes = Counter(names["train"]), Counter(names["test"])

    single = order_classes(name for name, size in train_sizes.items() if size == 1)
    if single and len(single) == len(train_sizes) and not drop_small_classes:
        raise UserError(f"every training class of {origin} has a single {item}: add {item}s of the same classes")
    if single and not drop_small_classes:
        raise UserError(
            f"{origin} has training classes with a single {item} ({listing(single)}): add {item}s, remove these "
            "classes, or set `drop_small_classes`=true to leave them out"
        )
    if single:
        notes.append(f"left out {len(single)} training classes with a single {item}: {listing(single)}")
    train_classes = order_classes(train_sizes.keys() - set(single))
    test_classes = order_classes(test_sizes)
    notes += _notes_on_names({*train_classes, *test_classes})

    if len(train_classes) < 2:
        remedy = f"add {item}s" if single else "add classes"
        remedy += ", or let all train and none test with `test_share`=0" if can_all_train else ""
        raise UserError(
            f"{origin} has {len(train_classes) or 'no'} training class with two {item}s or more, but it takes two such "
            f"classes to learn to tell them apart: {remedy}"
        )
    if test_share != 0 and max(test_sizes.values(), default=0) < 2:
        raise UserError(f"{origin} has no test class with two {item}s, so there is nothing to retrieve: add {item}s")
    if len(test_classes) == 1:
        notes.append(f"there is only one test class ({test_classes[0]}): every retrieval will be right")
    if shared := order_classes(set(train_classes) & set(test_classes)):
        notes.append(
            f"{len(shared)} classes both train and test, so scores are not of unseen classes: {listing(shared)}"
        )
    train = _of_split(source, labels, splits, "train", train_classes)
    test = _of_split(source, labels, splits, "test", test_classes)
    return DataHalves(train, TestSet(test), tuple(notes), says_what_tests=is_given)


def _notes_on_names(classes: Iterable[str]) -> list[str]:
    """Say which classes may be one, on the same side or on both: names that differ only in case or Unicode form."""
    spellings: dict[str, list[str]] = {}
    for name in sorted(classes):
        spellings.setdefault(unicodedata.normalize("NFKC", name).casefold(), []).append(name)
    alike = [" and ".join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    return [f"classes {listing(alike)} differ only in case or Unicode form: are they one class?"] if alike else []


def refuse_share(origin: str, item: str, test_share: float) -> None:
    """Raise if a share of the classes should test, but the data set says itself what does."""
    if test_share != 0.5:
        raise UserError(
            f"{origin} says itself which {item}s test, so that `test_share`={test_share:g} has no effect: leave it out"
        )


def _halved(labels: Sequence[str], origin: str, test_share: float) -> list[str]:
    """Assign each item's split (N,), with the first of the sorted classes for training."""
    classes = order_classes(labels)
    if len(classes) < 2:
        raise UserError(f"{origin} has only one class ({listing(classes)}): add classes to train and to test on")
    training = {classes[c] for c in halve_classes(len(classes), test_share)[0]}
    return ["train" if label in training else "test" for label in labels]


def _of_split(
    source: Source, labels: Sequence[str], splits: Sequence[str], split: str, classes: list[str]
) -> LabelledSet:
    number = {name: c for c, name in enumerate(classes)}
    chosen = [
        (position, number[label])
        for position, (label, where) in enumerate(zip(labels, splits, strict=True))
        if where == split and label in number
    ]
    positions, numbers = torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return LabelledSet(source, positions.contiguous(), numbers.contiguous(), tuple(classes))
