"""Fit folds and batches to a small data set, where nobody has set them: one step instead of one error after another."""

from collections.abc import Collection

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import DataHalves, LabelledSet
from ccp_dml.data.splits import class_quarters
from ccp_dml.errors import UserError

FITTED = ("folder", "csv", "features")
"""One's own data; published data sets keep their protocols."""

LEAST_CLASSES = 4
"""Training classes below this cannot be divided: two to learn from, two to validate on."""

LEAST_IMAGES = 4
"""Images of a class below this cannot be divided: two to learn from, two to validate on."""


def fit_to_data(config: Config, halves: DataHalves, written: Collection[str]) -> tuple[Config, list[str]]:
    """Change folds and batches that the training classes are too few for; return the configuration, and what changed.

    Keys in `written` were set by a person and stay: if they do not fit, training refuses them.
    """
    if config.data.name not in FITTED or config.protocol.select_on == "test" or config.protocol.hold_out == "nothing":
        return config, []
    changes = fitting_folds(config, halves.train, written)
    protocol = config.protocol.model_copy(update=changes)
    learned = learned_classes(protocol.hold_out, protocol.fold, protocol.folds, halves.train)
    batch = fitting_batch(config, learned, written)
    fitted = config.model_copy(update={"protocol": protocol, "train": config.train.model_copy(update=batch)})
    named = {f"protocol.{key}": value for key, value in changes.items()}
    named |= {f"train.{key}": value for key, value in batch.items()}
    if not named:
        return config, []
    values = ", ".join(f"{key}={value}" for key, value in named.items())
    return fitted, [f"Fitted to {len(halves.train.class_names)} training classes: {values}."]


def fitting_folds(config: Config, train: LabelledSet, written: Collection[str]) -> dict[str, object]:
    """Choose as many folds as the classes allow, or let images validate if they allow none."""
    protocol, classes = config.protocol, len(train.class_names)
    if {"protocol.folds", "protocol.fold"} & set(written):
        return {}
    if protocol.hold_out == "classes" and classes >= LEAST_CLASSES:
        return {"folds": classes // 2} if classes < 2 * protocol.folds else {}
    if protocol.hold_out == "classes" and "protocol.hold_out" in written:
        return {}
    smallest = int(train.labels.bincount().min())
    if smallest < LEAST_IMAGES:
        name = train.class_names[int(train.labels.bincount().argmin())]
        division = "the array `split`" if config.data.name == "features" else "data.test_share"
        raise UserError(
            f"{classes} training classes are too few to learn from some and validate on others ({LEAST_CLASSES} are "
            f"needed), and class {name} has too few images to validate on a part of them ({smallest}; {LEAST_IMAGES} "
            f"are needed): add classes or images, or let fewer classes test with {division}."
        )
    folds = min(protocol.folds, smallest // 2)
    hold_out = {} if protocol.hold_out == "images" else {"hold_out": "images"}
    return {**hold_out, **({} if folds == protocol.folds else {"folds": folds})}


def learned_classes(hold_out: str, fold: int, folds: int, train: LabelledSet) -> int:
    """Count the classes that train: all but those of the fold, unless images validate."""
    classes = len(train.class_names)
    return classes if hold_out == "images" else classes - len(class_quarters(classes, folds)[fold])


def fitting_batch(config: Config, learned: int, written: Collection[str]) -> dict[str, object]:
    """Take fewer classes and more images of each, so that a batch stays as large."""
    train = config.train
    if learned >= train.classes_per_batch or "train.classes_per_batch" in written:
        return {}
    batch: dict[str, object] = {"classes_per_batch": learned}
    if "train.images_per_class" not in written:
        batch["images_per_class"] = -(-train.classes_per_batch * train.images_per_class // learned)
    return batch
