"""From the `loss` section of a configuration to a loss, ours or one of pytorch-metric-learning."""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model
from torch import nn

from ccp_dml.config.layers import nearest
from ccp_dml.config.schema import LossConfig
from ccp_dml.errors import UserError
from ccp_dml.losses import LOSSES, PROXY_LOSSES
from ccp_dml.losses.pml import PREFIX, PmlLoss, pml_losses, settable_arguments


@dataclass(frozen=True)
class Surroundings:
    """What a loss may ask for by name in its constructor, but which no configuration sets: the run knows it."""

    classes: int
    dim: int
    steps_per_epoch: int
    seed: int


def build_loss(loss: LossConfig, surroundings: Surroundings) -> nn.Module:
    arguments = checked_arguments(loss)
    if loss.name.startswith(PREFIX):
        name, own = loss.name.removeprefix(PREFIX), surroundings
        adapted = PmlLoss(name, arguments, classes=own.classes, dim=own.dim, seed=own.seed)
        adapted.rehearse(references=False)
        return adapted
    constructor = {**LOSSES, **PROXY_LOSSES}[loss.name]
    asked_for = inspect.signature(constructor).parameters
    given = {name: value for name, value in asdict(surroundings).items() if name in asked_for}
    return constructor(**arguments, **given)


def refuse_without_references(loss: nn.Module, name: str, setting: str) -> None:
    """Raise unless `loss` can be measured against references, which `setting` needs."""
    if "ref_embeddings" not in inspect.signature(loss.forward).parameters:
        raise UserError(
            f"loss.name = {name!r} compares samples with proxies of its own and does not go together with {setting}; "
            "choose a pair loss such as c2, or leave that setting out."
        )
    if isinstance(loss, PmlLoss):
        loss.rehearse(references=True)


def checked_arguments(loss: LossConfig) -> dict[str, Any]:
    """All arguments of a loss, given or default; what does not fit its signature is an error."""
    fields: dict[str, Any] = {
        name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in settable_parameters(loss.name).items()
    }
    for name in loss.arguments:
        if name not in fields:
            known = nearest(name, list(fields)) or f"; it takes {', '.join(fields) or 'none'}"
            raise UserError(f"loss.{name} is no argument of the loss {loss.name!r}{known}.")
    rules = ConfigDict(allow_inf_nan=False, protected_namespaces=(), strict=True)
    try:
        return dict(create_model("Arguments", __config__=rules, **fields)(**loss.arguments))
    except ValidationError as error:
        first = error.errors()[0]
        key, problem = str(first["loc"][0]), first["msg"][0].lower() + first["msg"][1:]
        if first["type"] == "missing":
            raise UserError(f"The loss {loss.name!r} needs loss.{key}: --set loss.{key}=VALUE.") from None
        raise UserError(f"loss.{key} = {loss.arguments.get(key)!r}: {problem}.") from None


def settable_parameters(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a loss's constructor that a configuration may set."""
    refuse_unknown_loss(name)
    if name.startswith(PREFIX):
        return dict(settable_arguments(name.removeprefix(PREFIX)).parameters)
    parameters = inspect.signature({**LOSSES, **PROXY_LOSSES}[name]).parameters
    return {key: value for key, value in parameters.items() if key not in Surroundings.__dataclass_fields__}


def refuse_unknown_loss(name: str) -> None:
    known = [PREFIX + loss for loss in pml_losses()] if name.startswith(PREFIX) else [*LOSSES, *PROXY_LOSSES]
    if name not in known:
        raise UserError(f"loss.name = {name!r} is no loss{nearest(name, known)}; see `ccp list losses`.")
