"""The arguments that a configuration gives to losses, and to backbones, miners and data sets of a user's own.

The arguments of the shipped losses are read from their source, so that `ccp config` does not wait for torch.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, create_model

from ccp_dml.config.layers import wrong_value
from ccp_dml.config.loss_signatures import shipped_losses
from ccp_dml.config.schema import Config, LossConfig
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation import own_code

if TYPE_CHECKING:
    from torch import nn

RULES = ConfigDict(allow_inf_nan=False, protected_namespaces=(), strict=True, arbitrary_types_allowed=True)


def with_absolute_paths(config: Config) -> Config:
    """Make the paths of code files absolute, so that a stored configuration means the same everywhere."""
    miner = None if config.loss.miner is None else own_code.absolute(config.loss.miner)
    return config.with_values(
        loss={"name": own_code.absolute(config.loss.name), "miner": miner},
        model={"backbone": own_code.absolute(config.model.backbone)},
        data={"name": own_code.absolute(config.data.name)},
    )


def signature_of(constructor: Callable[..., Any]) -> inspect.Signature:
    """Read the signature of a class or function, with annotations as types where they can be found."""
    signature = inspect.signature(constructor)
    try:
        hints = typing.get_type_hints(vars(constructor).get("__init__", constructor))
    except Exception:  # a name in an annotation that exists for type checkers only
        hints = {}
    parameters = [
        one.replace(annotation=hints.get(one.name, Any if isinstance(one.annotation, str) else one.annotation))
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def checked_against(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    given: Mapping[str, Any],
    prefix: str,
    noun: str,
) -> dict[str, Any]:
    """Check arguments that a configuration gives against a signature, and complete them with its defaults.

    Args:
        name: of the class, as the configuration has it.
        parameters: what may be given.
        given: what is.
        prefix: how the keys of these arguments begin: `loss.`, `model.args.`.
        noun: what messages call the class.
    """
    fields: dict[str, Any] = {
        key: (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for key, parameter in parameters.items()
    }
    for key in given:
        if key not in fields:
            raise UserError(f"{prefix}{key} is no argument of the {noun} {name!r}{_known(name, key, parameters)}.")
    try:
        return dict(create_model("Arguments", __config__=RULES, **fields)(**given))
    except ValidationError as error:
        values = {f"{prefix}{key}": value for key, value in given.items()}
        raise wrong_value(error, values, section=prefix.removesuffix(".")) from None


def _known(name: str, key: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    near = did_you_mean(key, list(parameters))
    if own_code.parse(name) is not None:
        shown = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in parameters.values()])
        return f"{near}; it takes {str(shown).replace('(*, ', '(')}"
    return near or f"; it takes {', '.join(parameters) or 'none'}"


def construct_own(
    name: str,
    group: str,
    given: Mapping[str, Any],
    prefix: str,
    noun: str,
    *,
    filled: Mapping[str, Any] | None = None,
    base: type | None = None,
) -> Any:
    """Construct the class behind `name` with the arguments `given` and `filled`; its signature must have all of them.

    An argument that the configuration gives wins over one that is filled in.
    """
    constructor = own_code.load(name, group, base)
    parameters = settable(constructor)
    fills = {key: value for key, value in (filled or {}).items() if key not in given}
    for key in fills.keys() - parameters.keys():
        setting = prefix.removesuffix("args.") + key
        raise UserError(f"{setting} is set, but the {noun} {name!r} has no argument `{key}`: leave it out.")
    left = {key: one for key, one in parameters.items() if key not in fills}
    checked = checked_against(name, left, as_paths(given, parameters), prefix, noun)
    return call_own(name, group, constructor, {key: checked[key] for key in given} | as_paths(fills, parameters))


def as_paths(given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Make paths of texts where a signature asks for paths, which no configuration can hold."""

    def wants_path(key: str) -> bool:
        annotation = parameters[key].annotation if key in parameters else None
        kinds = typing.get_args(annotation) or (annotation,)
        return Path in kinds and str not in kinds

    return {key: Path(value) if isinstance(value, str) and wants_path(key) else value for key, value in given.items()}


def call_own(name: str, group: str, constructor: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a user's class; what it raises becomes a sentence with the line of its file."""
    try:
        return constructor(**arguments)
    except UserError:
        raise
    except Exception as error:
        raise own_code.failed(name, str(own_code.source_file(name, group)), error) from error


def settable(constructor: Callable[..., Any], filled_by_run: Collection[str] = ()) -> dict[str, inspect.Parameter]:
    """List the parameters that a configuration may set by name."""
    hidden = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return {
        key: value
        for key, value in signature_of(constructor).parameters.items()
        if value.kind not in hidden and key not in filled_by_run
    }


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
    config = with_absolute_paths(config)
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
    return checked_against(loss.name, settable_parameters(loss.name), loss.arguments, "loss.", "loss")


def settable_parameters(name: str) -> dict[str, inspect.Parameter]:
    """List the parameters of a loss's constructor that a configuration may set."""
    if name in shipped_losses():
        return shipped_losses()[name].parameters
    if name.startswith(PREFIX):
        from ccp_dml.losses.pml import pml_losses, settable_arguments

        refuse_unknown_loss(name)
        return dict(settable_arguments(pml_losses()[name.removeprefix(PREFIX)]).parameters)
    return settable(find_loss(name), LossContext.__dataclass_fields__)


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
