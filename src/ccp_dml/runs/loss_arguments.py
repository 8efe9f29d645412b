"""The arguments of a loss, as its constructor has them and a configuration sets them.

Apart from the other parts that are built from a configuration: these need the losses only, so that `ccp config` waits
neither for networks nor for devices.
"""

import inspect
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from ccp_dml.config.layers import wrong_value
from ccp_dml.config.schema import Config, LossConfig
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.losses import LOSSES, PROXY_LOSSES
from ccp_dml.losses.pml import PREFIX, pml_losses, settable_arguments


@dataclass(frozen=True)
class LossContext:
    """Facts of a run that a loss's constructor may ask for by name; no configuration sets them."""

    classes: int
    dim: int
    steps_per_epoch: int = 100
    seed: int = 0


def complete(config: Config) -> Config:
    """Spell out every argument of the loss, so that a saved configuration does not depend on defaults."""
    loss = LossConfig(name=config.loss.name, **checked_arguments(config.loss))
    return config.model_copy(update={"loss": loss})


def checked_arguments(loss: LossConfig) -> dict[str, Any]:
    """Check a loss's arguments against its signature, and complete them with its defaults."""
    fields: dict[str, Any] = {
        name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in settable_parameters(loss.name).items()
    }
    for name in loss.arguments:
        if name not in fields:
            known = did_you_mean(name, list(fields)) or f"; it takes {', '.join(fields) or 'none'}"
            raise UserError(f"loss.{name} is no argument of the loss {loss.name!r}{known}.")
    rules = ConfigDict(allow_inf_nan=False, protected_namespaces=(), strict=True)
    try:
        return dict(create_model("Arguments", __config__=rules, **fields)(**loss.arguments))
    except ValidationError as error:
        raise wrong_value(
            error, {f"loss.{key}": value for key, value in loss.arguments.items()}, section="loss"
        ) from None


def settable_parameters(name: str) -> dict[str, inspect.Parameter]:
    """List the parameters of a loss's constructor that a configuration may set."""
    refuse_unknown_loss(name)
    if name.startswith(PREFIX):
        return dict(settable_arguments(name.removeprefix(PREFIX)).parameters)
    parameters = inspect.signature({**LOSSES, **PROXY_LOSSES}[name]).parameters
    return {key: value for key, value in parameters.items() if key not in LossContext.__dataclass_fields__}


def refuse_unknown_loss(name: str) -> None:
    known = [PREFIX + loss for loss in pml_losses()] if name.startswith(PREFIX) else [*LOSSES, *PROXY_LOSSES]
    if name not in known:
        raise UserError(f"loss.name = {name!r} is no loss{did_you_mean(name, known)}; see `ccp list losses`.")
