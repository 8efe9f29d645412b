"""Arguments of a user's own classes: checked against their signatures, filled in by the run."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.foundation.own_code import BACKBONES
from ccp_dml.runs.own_classes import construct, signature_of, with_absolute_paths

TEXT = """
from __future__ import annotations

class Part:
    def __init__(self, width: int, root: str = "here", scale: float = 1.0, odd: NotThere = None, **rest):
        if width < 0:
            raise ValueError("too narrow")
        self.width, self.root, self.scale = width, root, scale
"""


@pytest.fixture
def name(tmp_path):
    (tmp_path / "parts.py").write_text(TEXT)
    return f"{tmp_path / 'parts.py'}:Part"


def make(name, filled=None, **given):
    return construct(name, BACKBONES, given, "model.args.", "backbone", filled=filled)


def test_arguments_come_from_the_configuration_or_the_run(name):
    part = make(name, {"root": "there", "path": "unasked"}, width=3, scale=2)
    assert (part.width, part.root, part.scale) == (3, "there", 2)
    assert make(name, {"root": "there"}, width=3, root="mine").root == "mine"
    assert make(name, width=3).root == "here"


def test_wrong_arguments_are_refused_with_the_signature(name):
    with pytest.raises(
        UserError, match=r"model\.args\.widht is no argument of the backbone .*did you mean 'width'; it takes \(width"
    ):
        make(name, widht=3)
    with pytest.raises(UserError, match=r"model\.args\.width is not set and has no default"):
        make(name)


def test_types_are_checked_where_they_can_be_read(tmp_path):
    (tmp_path / "typed.py").write_text("def part(width: int = 3): return width\n")
    assert make(f"{tmp_path / 'typed.py'}:part", width=4) == 4
    with pytest.raises(UserError, match=r"model\.args\.width = 'wide': it must be a whole number"):
        make(f"{tmp_path / 'typed.py'}:part", width="wide")


def test_what_a_class_raises_names_its_line(name):
    with pytest.raises(UserError, match=r"parts\.py:Part \(line 7\) failed: ValueError: too narrow"):
        make(name, width=-1)


def test_signatures_read_annotations_that_are_text():
    def part(width: "int", odd: "NotThere" = None):  # noqa: F821
        return width, odd

    assert [str(one) for one in signature_of(part).parameters] == ["width", "odd"]


def test_paths_in_a_configuration_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["loss.name=a.py:A", "loss.miner=b.py:B", "model.backbone=c.py:C", "data.name=d.py:D"]
    config = with_absolute_paths(resolve([], names).config)
    found = [config.loss.name, config.loss.miner, config.model.backbone, config.data.name]
    assert found == [f"{tmp_path / file}" for file in ("a.py:A", "b.py:B", "c.py:C", "d.py:D")]
