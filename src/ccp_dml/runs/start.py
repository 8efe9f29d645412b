"""The start of a run: turn what was typed into its configuration, and say what is about to happen.

What would have no effect is refused; folds and batches that nobody has set are fitted to a small data set.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Literal

from ccp_dml.config.layers import SETTING, Resolved, parse_settings, resolve, values_of
from ccp_dml.config.readers import refuse_unread, set_by_user, written_by_user
from ccp_dml.config.recipes import refuse_disorder, shipped_recipes
from ccp_dml.config.schema import Config, ProtocolConfig, TrainConfig
from ccp_dml.data.files.health import short_side
from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.splits import LEAST_CLASSES, LEAST_IMAGES, class_quarters
from ccp_dml.data.views import Unaugmented
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.records import layout
from ccp_dml.records.evaluation_log import Row
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.records.setting_groups import WHAT_IS_TRAINED
from ccp_dml.reports.words import method_text
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.datasets import LoadData, with_sizes

OWN_DATA = ("folder", "csv")
"""Recipes of one's own images, which leave open how to train on them."""


@dataclass(frozen=True)
class WantedRun:
    """A configuration as it will be kept, and what to say about it."""

    config: Config
    notes: tuple[str, ...] = ()


def wanted_run(
    recipes: Sequence[str],
    settings: Sequence[str],
    seed: int | None,
    load_data: LoadData,
    final: Path | None = None,
) -> WantedRun:
    """Resolve what was typed, and fit to the data what was not; with `final`, take what that run has found.

    Raises where a recipe or a setting would have no effect, or another than was meant.
    """
    refuse_disorder(recipes)
    if final is not None:
        return WantedRun(complete(final_config(final, recipes, settings, seed)))
    resolved = resolve(recipes, settings, seed)
    refuse_without_data(resolved, recipes, settings)
    config = complete(resolved.config)
    refuse_unread([config], written_by_user(resolved))
    refuse_without_mode(resolved)
    config = config.model_copy(update={"data": with_sizes(config.data)})
    notes = [method_note(resolved)]
    if config.data.name in FITTED or own_code.is_own(config.data.name, own_code.DATASETS):
        config, fitted = fit_to_data(config, load_data(config.data), set_by_user(resolved))
        notes += fitted
    return WantedRun(config, tuple(filter(None, notes)))


def refuse_without_data(resolved: Resolved, recipes: Sequence[str], settings: Sequence[str]) -> None:
    """Raise unless a recipe or setting names the data set: nobody's photos are read by chance."""
    if "data.name" in resolved.origins:
        return
    readers = {"data.root": "folder", "data.path": "csv"}
    given = next((key for key in readers if key in set_by_user(resolved)), None)
    data = "glyphs" if given is None else readers[given]
    options = [part for setting in settings for part in ("--set", setting)]
    has_mode = not set(recipes).isdisjoint(shipped_recipes("modes"))
    mode = ["frozen"] if given is not None and not has_mode else []  # without one, the next question would be how
    example = " ".join(["ccp train", data, *mode, *recipes, *options])
    read = "" if given is None else f"{given} is read by {data}, "
    raise UserError(f"No data set is named; {read}for example: {example} (`ccp list datasets` names them).")


def method_note(resolved: Resolved) -> str | None:
    """Say which loss trains where no recipe or setting names one; None if one does."""
    if "loss.name" in resolved.origins:
        return None
    return (
        f"No method is named: the loss {resolved.config.loss.name} trains by itself; name a method for another, "
        "such as c2-ccp (`ccp list methods`)."
    )


def refuse_without_mode(resolved: Resolved) -> None:
    """Raise if the backbone of one's own data would start from random weights because nobody said how to train."""
    model, data = resolved.config.model, resolved.config.data.name
    named_by = resolved.origins.get("model.backbone")
    is_open = named_by in OWN_DATA or (named_by is None and own_code.is_own(data, own_code.DATASETS))
    if is_open and not (model.pretrained or model.weights):
        example = data if data in OWN_DATA else "folder"
        raise UserError(
            f"Say how to train with a mode, as in `ccp train {example} frozen c2-ccp` or `--data {example},frozen`: "
            "`frozen` trains a head on a pretrained network "
            "in minutes; `top` its last stages, too; `finetune` all of it; `scratch` a small network from nothing. Or "
            "set model.weights=FILE or model.pretrained=true. See docs/modes.md."
        )


FITTED = ("folder", "csv", "features")
"""Recipes of one's own data, which are fitted to, as data sets in Python are; others keep their protocols."""


def fit_to_data(config: Config, halves: DataHalves, written: Collection[str]) -> tuple[Config, list[str]]:
    """Change folds and batches that the training classes are too few for; return the configuration, and what changed.

    Keys in `written` were set by a person and stay: if they do not fit, training refuses them.
    """
    if config.protocol.select_on == "test" or config.protocol.hold_out == "nothing":
        return config, []
    classes = len(halves.train.class_names)
    folds = fitting_folds(config, halves, written)
    fitted = config.with_values(protocol=folds)
    batch = fitting_batch(config.train, learned_classes(fitted.protocol, classes), written)
    changes = [f"protocol.{key}={value}" for key, value in folds.items()]
    changes += [f"train.{key}={value}" for key, value in batch.items()]
    notes = [f"Fitted to {classes} training classes: {', '.join(changes)}."] if changes else []
    return fitted.with_values(train=batch), notes


def fitting_folds(config: Config, halves: DataHalves, written: Collection[str]) -> dict[str, object]:
    """Choose as many folds as the classes allow, or let images validate if they allow none."""
    train, says_what_tests = halves.train, halves.says_what_tests
    protocol, classes = config.protocol, len(train.class_names)
    if protocol.fold > 0 or {"protocol.folds", "protocol.fold"} & set(written):
        return {}  # with fewer folds, another part of the classes would validate, or none
    if protocol.hold_out == "classes" and classes >= LEAST_CLASSES:
        return {"folds": classes // 2} if classes < 2 * protocol.folds else {}
    if protocol.hold_out == "classes" and "protocol.hold_out" in written:
        return {}
    smallest = int(train.labels.bincount().min())
    if smallest < LEAST_IMAGES:
        name = train.class_names[int(train.labels.bincount().argmin())]
        raise UserError(
            f"{classes} training classes are too few to learn from some and validate on others ({LEAST_CLASSES} are "
            f"needed), and class {name} has too few images to validate on a part of them ({smallest}; {LEAST_IMAGES} "
            f"are needed): add classes or images, or let fewer classes test"
            f"{'' if says_what_tests else ' with data.test_share'}."
        )
    folds = min(protocol.folds, smallest // 2)
    hold_out = {} if protocol.hold_out == "images" else {"hold_out": "images"}
    return {**hold_out, **({} if folds == protocol.folds else {"folds": folds})}


def learned_classes(protocol: ProtocolConfig, classes: int) -> int:
    """Count how many of the training half's `classes` train: all but those of the fold, unless images validate."""
    if protocol.hold_out == "images":
        return classes
    return classes - len(class_quarters(classes, protocol.folds)[protocol.fold])


def fitting_batch(train: TrainConfig, learned: int, written: Collection[str]) -> dict[str, object]:
    """Take fewer classes and more images of each, so that a batch stays as large."""
    if learned >= train.classes_per_batch or "train.classes_per_batch" in written:
        return {}
    batch: dict[str, object] = {"classes_per_batch": learned}
    if "train.images_per_class" not in written:
        batch["images_per_class"] = -(-train.batch_size // learned)
    return batch


def final_config(run: Path, recipes: Sequence[str], settings: Sequence[str], seed: int | None) -> Config:
    """Take the configuration of `run` for a training on every class; recipes may name what it was, and nothing else."""
    found = final_settings(run)
    config = resolve([str(run / layout.CONFIG)], [*found, *settings], seed).config
    values, named = values_of(config), resolve(recipes)
    for key in WHAT_IS_TRAINED:
        other = values_of(named.config).get(key)
        if key in named.origins and other != values.get(key):
            raise UserError(
                f"--final {run}: the run has {key} = {values.get(key)!r}, not {other!r} ({named.origins[key]}); leave "
                "the recipes out."
            )
    refuse_unread([config], {key: f"{SETTING}{key}" for key in parse_settings(settings)})
    return config


def final_settings(folder: Path) -> list[str]:
    """List the settings, beyond its configuration, with which the run in `folder` is trained again on every class.

    It trains as many steps as the best network had behind it, and ends as many problems of CCP on the way; the problems
    of PROFS keep the length that is set.
    """
    run = RunFolder.read(folder)
    best = run.best_evaluation()
    if not run.finished or best is None:
        raise UserError(
            f"--final {folder}: the run is not finished, so that it does not tell how long to train; continue it with "
            f"`ccp train --resume --out {quote(str(folder))}`."
        )
    settings = run.settings()
    if settings.get("protocol.hold_out") == "nothing":
        raise UserError(f"--final {folder}: the run was trained on every class itself; name the run it was made from.")
    without_proxies, with_proxies = lengths_of_problems(run, best)
    steps = sum(without_proxies) + sum(with_proxies)
    found = ["protocol.hold_out=nothing", "protocol.select_on=validation", f"train.max_steps={steps}"]
    if settings.get("ccp.mode") == "alternating" and settings.get("ccp.until") != "stale":
        # Problems end after as many steps as they took on the average; or there were none, and there will be none.
        length = max(1, round(sum(with_proxies) / len(with_proxies))) if with_proxies else steps
        found += ["ccp.until=steps", f"ccp.steps_per_problem={length}", f"ccp.start_step={sum(without_proxies)}"]
    return found


def lengths_of_problems(run: RunFolder, best: Row) -> tuple[list[int], list[int]]:
    """Count the steps that each problem contributed to the best network: those without proxies, those with them.

    Where each problem started from the best weights of the one before (`ccp.rewind`), the steps after its best
    evaluation were thrown away, and do not count.
    """
    starts = [start for start in run.problem_starts() if start["step"] < best["step"]]
    ends = [*(start["step"] for start in starts[1:]), best["step"]]
    settings = run.settings()
    if settings.get("ccp.rewind") and settings.get("ccp.until") == "stall":
        for number, start in enumerate(starts[:-1]):
            scored = [row for row in run.metrics if row.get("problem") == start["problem"]]
            ends[number] = max(scored, key=lambda row: row["map_at_r"])["step"]
    lengths: tuple[list[int], list[int]] = ([], [])
    for start, end in zip(starts, ends, strict=True):
        lengths[start["covering_radius"] is not None].append(end - start["step"])
    return lengths


MEASURED = 32
"""Files whose size is looked up: enough for a typical one, and few enough for a slow disk."""


@dataclass(frozen=True)
class Outline:
    """What a run is about to do; outline.json holds it."""

    classes: int
    images: int
    learned_classes: int
    validation_classes: int
    test_classes: int
    image_side: int | None  # the short side of a typical image file, in pixels; None: there are none
    sentence: str
    incomplete: tuple[str, ...] = ()  # how a published data set differs from what was published
    says_what_tests: bool = True  # whether the data say which classes test, not data.test_share


def outline(config: Config, halves: DataHalves, learned: LabelledSet, validation: TestSet) -> Outline:
    """Describe a run; `learned` and `validation` are what the protocol makes of the training half."""
    parts = halves.sets()
    classes = len({name for part in parts for name in part.class_names})
    images = sum(map(len, parts))
    test_classes = len(halves.test.sides()[-1].class_names)
    side = typical_side(learned)
    said = [
        f"{classes:,} classes, {images:,} {items_text(config)}: "
        f"{division_text(config, learned, validation, test_classes)}",
        network_text(config),
        *([] if side is None else [images_text(side, config.data.crop)]),
        method_text(values_of(config)),
    ]
    return Outline(
        classes=classes,
        images=images,
        learned_classes=len(learned.class_names),
        validation_classes=len(validation.queries.class_names),
        test_classes=test_classes,
        image_side=side,
        sentence="; ".join(said) + ".",
        incomplete=halves.incomplete,
        says_what_tests=halves.says_what_tests,
    )


def items_text(config: Config) -> str:
    return "vectors" if config.model.backbone == IDENTITY else "images"


def division_text(config: Config, learned: LabelledSet, validation: TestSet, test_classes: int) -> str:
    """Describe which classes train, validate and test."""
    if config.protocol.hold_out == "nothing":
        return f"learning from all {len(learned.class_names):,} classes, so that no score can be measured"
    testing = f"testing on {test_classes:,}" if test_classes else "testing on none"
    return f"learning from {len(learned.class_names):,} classes, {validation_text(config, validation)}, {testing}"


def typical_side(data: LabelledSet) -> int | None:
    """Look up the short side of a typical image of `data`, in pixels; None unless they are image files."""
    source = data.source.source if isinstance(data.source, Unaugmented) else data.source
    if not isinstance(source, ImageFiles) or not len(data):
        return None
    rows = range(0, len(data), max(1, len(data) // MEASURED))[:MEASURED]
    sides = (short_side(source.paths[int(data.positions[row])]) for row in rows)
    known = [side for side in sides if side is not None]  # who trains on the others will say what is wrong with them
    return round(median(known)) if known else None


def validation_text(config: Config, validation: TestSet) -> str:
    if config.protocol.select_on == "test":
        return "selecting on the test classes themselves"
    if config.protocol.hold_out == "images":
        return f"validating on {len(validation.queries):,} other {items_text(config)} of them"
    return f"validating on {len(validation.queries.class_names):,}"


def network_text(config: Config) -> str:
    """Describe the network, for example "small_cnn from random weights"."""
    model = config.model
    if model.backbone == IDENTITY:
        return f"a head of {model.embedding_dim} numbers on vectors"
    start = "from random weights"
    if model.weights is not None:
        start = f"with the weights in {model.weights}"
    elif model.pretrained:
        start = "with pretrained weights"
    rests = ", frozen" if model.freeze_backbone else f", frozen below {model.train_from}" if model.train_from else ""
    return f"{model.backbone} {start}{rests}"


def images_text(side: int, crop: int | Literal["files"]) -> str:
    if crop == "files":
        return f"images {side:,} px as they are"
    return f"images {side:,} px {'enlarged to' if side < crop else 'seen at'} {crop:,}"
