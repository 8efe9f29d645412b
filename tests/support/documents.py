"""Code blocks of the documents, and how a test runs them."""

import re
import shlex
from pathlib import Path

from ccp_dml.cli import main

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

QUICK = {
    "train": ["train.max_steps=4", "train.evaluate_every=2"],
    "benchmark": [
        *("train.max_steps=2", "train.evaluate_every=2", "train.classes_per_batch=4"),
        *("data.classes=24", "run.map_points=0", "protocol.folds=3", "protocol.fold=0"),
    ],
}
"""What cuts the trainings of the documents short."""

WITHOUT_DOWNLOAD = [
    *("model.backbone=small_cnn", "model.pretrained=false", "model.freeze_backbone=false", "model.head_init=xavier"),
    *("data.resize=36", "data.crop=32", "train.classes_per_batch=4", "run.workers=0"),
]
"""What replaces a pretrained backbone, whose weights a test must not fetch."""


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


def run_commands(text: str) -> int:
    """Run the lines of an sh block that begin with `ccp`, cut short; the number of them."""
    lines = [line for line in text.splitlines() if line.startswith("ccp ")]
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        settings = [*QUICK.get(arguments[0], []), *(WITHOUT_DOWNLOAD if "frozen" in arguments else [])]
        arguments += [part for setting in settings for part in ("--set", setting)]
        assert main(arguments) == 0, line
    return len(lines)
