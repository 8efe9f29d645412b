"""The arguments of a loss, as its constructor has them and a configuration sets them.

Apart from the other parts that are built from a configuration: the arguments of the shipped losses are read from their
source, so that `ccp config` does not wait for torch.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccp_dml.config.loss_signatures import shipped_losses
from ccp_dml.config.schema import Config, LossConfig
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation import own_code
from ccp_dml.runs import own_classes

if TYPE_CHECKING:
    from torch import nn

PREFIX = "pml:"
"""How the names of losses and miners of pytorch-metric-learning begin."""


@dataclass(frozen=True)
class LossContext:
    """Facts of a run that a loss's constructor may ask for by name; no configuration sets them."""

    classes: int
    dim: int
    steps_per_epoch: int = 100
    seed: int = 0


def complete(config: Config) -> Config:
    """Spell out every argument of the loss, so that a saved configuration does not depend on defaults."""
    config = own_classes.with_absolute_paths(config)
    arguments = {key: value for key, value in checked_arguments(config.loss).items() if is_plain(value)}
    loss = LossConfig(name=config.loss.name, miner=config.loss.miner, miner_args=config.loss.miner_args, **arguments)
    return config.model_copy(update={"loss": loss})


def is_plain(value: Any) -> bool:
    """Tell whether a configuration can hold a value; defaults of a user's class may be any object."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def checked_arguments(loss: LossConfig) -> dict[str, Any]:
    """Check a loss's arguments against its signature, and complete them with its defaults."""
    return own_classes.checked(loss.name, settable_parameters(loss.name), loss.arguments, "loss.", "loss")


def settable_parameters(name: str) -> dict[str, inspect.Parameter]:
    """List the parameters of a loss's constructor that a configuration may set."""
    if name in shipped_losses():
        return shipped_losses()[name].parameters
    if name.startswith(PREFIX):
        from ccp_dml.losses.pml import pml_losses, settable_arguments

        refuse_unknown_loss(name)
        return dict(settable_arguments(pml_losses()[name.removeprefix(PREFIX)]).parameters)
    return own_classes.settable(find_loss(name), LossContext.__dataclass_fields__)


def find_loss(name: str) -> "Callable[..., nn.Module]":
    """Find the class of a loss: one of this package, or one of the user's own."""
    from torch import nn

    from ccp_dml.losses import LOSSES, PROXY_LOSSES

    if own_code.is_own(name, own_code.LOSSES):
        return own_code.load(name, own_code.LOSSES, nn.Module)
    refuse_unknown_loss(name)
    return {**LOSSES, **PROXY_LOSSES}[name]


def refuse_unknown_loss(name: str) -> None:
    from ccp_dml.losses import LOSSES, PROXY_LOSSES
    from ccp_dml.losses.pml import pml_losses

    known = [PREFIX + loss for loss in pml_losses()] if name.startswith(PREFIX) else [*LOSSES, *PROXY_LOSSES]
    if name not in known:
        raise UserError(
            f"loss.name = {name!r} is no loss{did_you_mean(name, known)}; see `ccp list losses`, or name one of your "
            "own: FILE.py:NAME."
        )
