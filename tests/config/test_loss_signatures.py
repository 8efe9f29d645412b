"""What is read from the source of the losses is what Python sees of them."""

import ast
import inspect

import pytest

from ccp_dml.config.loss_signatures import FILLED_BY_THE_RUN, _type, shipped_losses
from ccp_dml.losses import LOSSES, PROXY_LOSSES
from ccp_dml.runs.arguments import LossContext


def test_every_loss_is_read_in_its_order():
    assert list(shipped_losses()) == [*LOSSES, *PROXY_LOSSES]
    assert set(LossContext.__dataclass_fields__) == FILLED_BY_THE_RUN


@pytest.mark.parametrize("name", [*LOSSES, *PROXY_LOSSES])
def test_summaries_and_signatures_agree_with_the_classes(name):
    loss = {**LOSSES, **PROXY_LOSSES}[name]
    expected = {
        key: (value.annotation, value.default)
        for key, value in inspect.signature(loss).parameters.items()
        if key not in FILLED_BY_THE_RUN
    }
    found = shipped_losses()[name]
    assert {key: (value.annotation, value.default) for key, value in found.parameters.items()} == expected
    assert found.summary == inspect.getdoc(loss).split("\n", 1)[0]


def test_a_type_that_cannot_be_read_is_said():
    with pytest.raises(TypeError, match=r"argument of type list\[int\]: add it to TYPES"):
        _type(ast.parse("list[int]", mode="eval").body)
