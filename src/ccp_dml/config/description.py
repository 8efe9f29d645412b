"""Describe the keys of a configuration in words: meaning, type, default."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ccp_dml.config.layers import FOR_LOSSES
from ccp_dml.config.recipes import recipe_layers, shipped_recipes
from ccp_dml.config.schema import Arguments, fields_by_key


@dataclass(frozen=True)
class KeyDescription:
    """What a person must know to set a key."""

    key: str
    meaning: str
    type: str
    default: Any  # None: it is unset


def describe_keys() -> dict[str, KeyDescription]:
    """Describe every key of the schema, section by section."""
    return {key: describe_field(key, field) for key, field in fields_by_key().items()}


def describe_field(key: str, field: FieldInfo) -> KeyDescription:
    """Describe one key of the schema."""
    limits = " ".join(limit for limit in map(limit_of, field.metadata) if limit)
    is_table = field.annotation == get_args(Arguments)[0]
    kind = "table of values" if is_table else f"{type_name(field.annotation)} {limits}".strip()
    default = field.get_default()
    return KeyDescription(key, field.description or "", kind, None if is_table else plain(default))


def describe_arguments(loss: str, parameters: Mapping[str, inspect.Parameter]) -> dict[str, KeyDescription]:
    """Describe the arguments of the loss called `loss`."""
    return {
        f"loss.{name}": KeyDescription(
            f"loss.{name}",
            f"argument of the loss {loss}",
            "anything" if one.annotation in (one.empty, Any) else type_name(one.annotation),
            None if one.default is one.empty else plain(one.default),
        )
        for name, one in parameters.items()
    }


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def limit_of(constraint: Any) -> str:
    """Write one bound of a number: `≥ 1`."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return " ".join(f"{sign} {getattr(constraint, name)}" for name, sign in signs.items() if hasattr(constraint, name))


def type_name(annotation: Any) -> str:
    """Name a type as a person would: `integer or unset`, `"clip" or "l2"`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in arguments)
    if origin in (Union, UnionType):
        named = [type_name(part) for part in arguments if part is not NoneType]
        return " or ".join([*named, *(["unset"] if NoneType in arguments else [])])
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {type_name(arguments[0])}"
        return f"{len(arguments)} of {type_name(arguments[0])}"
    if hasattr(annotation, "__metadata__"):  # Annotated: its limits are said elsewhere
        return type_name(get_args(annotation)[0])
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, str(annotation))


def recipes_that_set(key: str) -> dict[str, Any]:
    """Find the shipped recipes that set a key themselves, for every loss or for one: `scratch with ms` -> value.

    Tables for one loss hold its own arguments by their plain names.
    """
    section, _, name = key.partition(".")
    found: dict[str, Any] = {}
    for recipe in shipped_recipes():
        tables = recipe_layers(recipe)[-1].tables
        places = {recipe: tables} | {
            f"{recipe} with {loss}": {"loss": wishes} | wishes for loss, wishes in tables.get(FOR_LOSSES, {}).items()
        }
        found |= {place: table[section][name] for place, table in places.items() if name in table.get(section, {})}
    return found
