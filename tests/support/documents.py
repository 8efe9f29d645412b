"""Code blocks of the documents, and how a test runs them."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccp_dml.cli import main

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

FILE_NAME = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a file of the reader's."""

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


def follow(path: Path, capsys: pytest.CaptureFixture[str], also: Sequence[str] = ()) -> int:
    """Do what a page says from top to bottom, in the present folder; the number of things done.

    A Python block whose first line names a file (`# my_net.py`) is written to that file; any other one is run.
    """
    done = 0
    for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")):
        if kind == "sh":
            done += run_commands(text, also)
        elif kind == "python" and (named := FILE_NAME.match(text)):
            Path(named[1]).write_text(text, encoding="utf-8")
        elif kind == "python":
            capsys.readouterr()
            exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
            assert capsys.readouterr().out.strip(), f"a program in {path.name} shows nothing"
            done += 1
    return done


def run_commands(text: str, also: Sequence[str] = ()) -> int:
    """Run the lines of an sh block that begin with `ccp`, cut short and with `also` set; the number of them."""
    lines = [line for line in text.splitlines() if line.startswith("ccp ")]
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        settings = [
            *QUICK.get(arguments[0], []),
            *(also if arguments[0] == "train" else ()),
            *(WITHOUT_DOWNLOAD if "frozen" in arguments else []),
        ]
        arguments += [part for setting in settings for part in ("--set", setting)]
        assert main(arguments) == 0, line
    return len(lines)
