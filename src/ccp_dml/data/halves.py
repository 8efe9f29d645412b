"""From a label and perhaps a split for each item to the two halves of a data set."""

from collections import Counter
from collections.abc import Sequence

import torch

from ccp_dml.data.labelled import DataHalves, LabelledSet, Source, TestSet
from ccp_dml.data.listing import listing
from ccp_dml.data.splits import halve_classes, order_classes
from ccp_dml.errors import UserError

SPLITS = ("train", "test")


def divide(
    source: Source,
    labels: Sequence[str],
    splits: Sequence[str] | None,
    *,
    origin: str,
    item: str = "image",
    drop_small_classes: bool = False,
    notes: Sequence[str] = (),
) -> DataHalves:
    """The halves of a data set from the `labels` (N,) and the `splits` (N,) "train" or "test" of a source's items.

    Without `splits`, the first half of the sorted classes trains. `origin` names the data in errors.
    A training class of one item cannot be learned from: it is an error, or left out with `drop_small_classes`. A test
    class of one item stays, as a wrong answer for others.
    """
    notes = list(notes)
    if not labels:
        raise UserError(f"{origin} has no {item}s that can be read ({'; '.join(notes)}): add some")
    for name in dict.fromkeys(labels):
        if not _is_text(name):
            raise UserError(f"{origin} has a class whose name is not valid UTF-8 ({name!a}): rename it")
    splits = splits if splits is not None else _halved(labels, origin)
    names = {half: [n for n, split in zip(labels, splits, strict=True) if split == half] for half in SPLITS}
    train_sizes, test_sizes = Counter(names["train"]), Counter(names["test"])

    single = order_classes(name for name, size in train_sizes.items() if size == 1)
    if single and not drop_small_classes:
        raise UserError(
            f"{origin} has training classes with a single {item} ({listing(single)}): add {item}s, remove these "
            "classes, or set data.drop_small_classes=true to leave them out"
        )
    if single:
        notes.append(f"left out {len(single)} training classes with a single {item}: {listing(single)}")
    train_classes = order_classes(train_sizes.keys() - set(single))
    test_classes = order_classes(test_sizes)

    if len(train_classes) < 2:
        raise UserError(
            f"{origin} has {len(train_classes) or 'no'} training class with two {item}s or more, but it takes two such "
            "classes to learn to tell them apart: add classes"
        )
    if max(test_sizes.values(), default=0) < 2:
        raise UserError(f"{origin} has no test class with two {item}s, so there is nothing to retrieve: add {item}s")
    if len(test_classes) == 1:
        notes.append(f"there is only one test class ({test_classes[0]}): every retrieval will be right")
    if shared := order_classes(set(train_classes) & set(test_classes)):
        notes.append(
            f"{len(shared)} classes both train and test, so scores are not of unseen classes: {listing(shared)}"
        )
    train = _of_split(source, labels, splits, "train", train_classes)
    test = _of_split(source, labels, splits, "test", test_classes)
    return DataHalves(train, TestSet(test), tuple(notes))


def _is_text(name: str) -> bool:
    """Whether the name can be written anywhere; names of folders may hold any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _halved(labels: Sequence[str], origin: str) -> list[str]:
    """The split (N,) of each item when the first half of the sorted classes trains."""
    classes = order_classes(labels)
    if len(classes) < 2:
        raise UserError(f"{origin} has only one class ({listing(classes)}): add classes to train and to test on")
    training = {classes[c] for c in halve_classes(len(classes))[0]}
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
    positions, numbers = torch.tensor(chosen, dtype=torch.int64).unbind(1)
    return LabelledSet(source, positions.contiguous(), numbers.contiguous(), tuple(classes))
