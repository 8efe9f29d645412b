from pathlib import Path

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.own_code import BACKBONES
from ccp_dml.runs.arguments import complete, construct_own, signature_of, with_absolute_paths

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
    return construct_own(name, BACKBONES, given, "model.args.", "backbone", filled=filled)


def test_arguments_come_from_the_configuration_or_the_run(name):
    part = make(name, {"root": "there"}, width=3, scale=2)
    assert (part.width, part.root, part.scale) == (3, "there", 2)
    assert make(name, {"root": "there"}, width=3, root="mine").root == "mine"
    assert make(name, width=3).root == "here"
    with pytest.raises(UserError, match=r"^model\.path is set, but the backbone .*Part' has no argument `path`: leave"):
        make(name, {"path": "unasked"}, width=3)


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


@pytest.mark.parametrize("annotation", ["Path", "Path | None", '"Path"'])
def test_texts_become_paths_where_a_class_asks_for_paths(tmp_path, annotation):
    (tmp_path / "paths.py").write_text(
        f"from pathlib import Path\ndef part(root: {annotation}, other: str | Path = ''): return root, other\n"
    )
    part = f"{tmp_path / 'paths.py'}:part"
    assert make(part, root="there", other="x") == make(part, {"root": "there"}, other="x") == (Path("there"), "x")
    with pytest.raises(UserError, match=r"model\.args\.root = 3: "):
        make(part, root=3)


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


def config(*settings, recipes=()):
    return resolve(list(recipes), ["model.embedding_dim=6", *settings]).config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss.name=proxy-ancor"], "did you mean 'proxy-anchor'"),
        (["loss.name=pml:CircelLoss"], "did you mean 'pml:CircleLoss'"),
        (["loss.name=pml:VICRegLoss"], "'pml:VICRegLoss' is no loss"),
        (["loss.name=proxy-anchor", "loss.alfa=3"], "loss.alfa is no argument of the loss 'proxy-anchor'.*'alpha'"),
        (["loss.name=pml:CircleLoss", "loss.gama=3"], "loss.gama is no argument .*'gamma'"),
        (["loss.name=pml:CircleLoss", "loss.reducer=mean"], "loss.reducer is no argument .*it takes m, gamma"),
        (["loss.name=pml:CircleLoss", "loss.gamma=much"], "loss.gamma = 'much'"),
        (["loss.name=pml:CircleLoss", "loss.gamma=true"], "loss.gamma = True"),
        (["loss.name=pml:TripletMarginLoss", "loss.swap=1"], "loss.swap = 1"),
        (["loss.name=pml:RankedListLoss"], "loss.margin is not set and has no default"),
        (["loss.name=proxy-anchor", "loss.classes=3"], "loss.classes is no argument"),
        (["loss.name=soft-triple", "loss.centres_per_class=2.5"], "loss.centres_per_class = 2.5"),
    ],
)
def test_wrong_losses_and_arguments(settings, message):
    with pytest.raises(UserError, match=message):
        complete(config(*settings))


def test_a_complete_configuration_spells_out_the_arguments():
    assert complete(config("loss.name=pml:CircleLoss", "loss.gamma=7")).loss.arguments == {"m": 0.4, "gamma": 7}
    assert complete(config("loss.name=proxy-nca++")).loss.arguments == {"temperature": 0.1}
    assert complete(Config()).loss.arguments["negative_margin"] == 0.5
