"""Say what a run is about to do, before it does it: how the classes are divided, what network sees which images."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from PIL import Image

from ccp_dml.config.layers import flatten
from ccp_dml.config.schema import Config
from ccp_dml.data.files.images import FORMATS, ImageFiles
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.views import Unaugmented
from ccp_dml.models.backbones import IDENTITY
from ccp_dml.reports.words import method_text

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def outline(config: Config, halves: DataHalves, learned: LabelledSet, validation: TestSet) -> Outline:
    """Describe a run; `learned` and `validation` are what the protocol makes of the training half."""
    parts = [part for part in (halves.train, halves.test.queries, halves.test.gallery) if part is not None]
    classes = len({name for part in parts for name in part.class_names})
    images = sum(map(len, parts))
    test_classes = len((halves.test.gallery or halves.test.queries).class_names)
    side = typical_side(learned)
    said = [
        f"{classes:,} classes, {images:,} {items_text(config)}: "
        f"{division_text(config, learned, validation, test_classes)}",
        network_text(config),
        *([] if side is None else [images_text(side, config.data.crop)]),
        method_text(dict(flatten(config.as_tables()))),
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
    rows = range(0, len(data), max(1, len(data) // MEASURED))
    sides = []
    for row in rows[:MEASURED]:
        try:
            with Image.open(source.paths[int(data.positions[row])], formats=FORMATS) as image:
                sides.append(min(image.size))
        except OSError:
            continue  # who trains on it will say what is wrong with it
    return round(median(sides)) if sides else None


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
