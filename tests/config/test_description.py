"""Keys in words: meaning, type, default, and the recipes that set them."""

from inspect import Parameter
from typing import Annotated, Literal

import pytest
from pydantic import Field

from ccp_dml.config.description import describe_arguments, describe_keys, recipes_that_set, type_name
from ccp_dml.config.layers import known_keys


def test_every_key_is_described():
    described = describe_keys()
    assert list(described) == known_keys()
    assert all(one.meaning and one.type for one in described.values())


def test_types_limits_and_defaults_are_said():
    described = describe_keys()
    assert (described["optim.lr"].type, described["optim.lr"].default) == ("number > 0", 1e-5)
    assert described["optim.betas"].default == [0.9, 0.999]
    assert described["data.root"].default is None
    assert described["data.root"].type == "text or unset"
    assert described["model.normalise"].type == '"clip" or "l2"'
    assert described["model.args"].type == "table of values"


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (bool, "true or false"),
        (tuple[int, ...], "list of integer"),
        (tuple[float, float], "2 of number"),
        (Literal["a", "b"], '"a" or "b"'),
        (Annotated[int, Field(ge=1)], "integer"),
        (int | None, "integer or unset"),
    ],
)
def test_types_are_named_for_people(annotation, name):
    assert type_name(annotation) == name


def test_arguments_of_a_loss_are_described():
    margin = Parameter("margin", Parameter.KEYWORD_ONLY, default=0.5, annotation=float)
    anything = Parameter("x", Parameter.KEYWORD_ONLY)
    found = describe_arguments("c1", {"margin": margin, "x": anything})
    assert (found["loss.margin"].meaning, found["loss.margin"].type) == ("argument of the loss c1", "number")
    assert (found["loss.x"].type, found["loss.x"].default) == ("anything", None)


def test_recipes_that_set_a_key_are_found():
    assert recipes_that_set("optim.lr")["glyphs"] == 1e-3
    modes = recipes_that_set("ccp.mode")
    assert modes["c2-ccp"] == "alternating"
    assert "c2" not in modes
    assert recipes_that_set("loss.negative_margin")["cub with c2"] == 0.3841
    found = recipes_that_set("ccp.until")
    assert (found["frozen"], found["scratch"], found["scratch with ms"]) == ("stall", "behind", "stale")
