"""A study's own values: the table `[study]` of its recipe and `--set study.KEY=VALUE`, checked against a model."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ccp_dml.config.layers import STUDY, flatten, nearest, parse_setting, read_recipe
from ccp_dml.errors import UserError

Options = TypeVar("Options", bound=BaseModel)


def read_options(model: type[Options], recipes: Sequence[str], settings: Sequence[str]) -> Options:
    """The values of `[study]` in recipes, then in settings, as a `model`; the first wrong one becomes one sentence."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in [read_recipe(name) for name in recipes] + [parse_setting(text) for text in settings]:
        for key, value in flatten({STUDY: layer.tables.get(STUDY, {})}):
            if key.removeprefix(f"{STUDY}.") not in model.model_fields:
                known = [f"{STUDY}.{name}" for name in model.model_fields]
                near = nearest(key, known) or f"; this study has {', '.join(known)}"
                raise UserError(f"Unknown key {key!r} ({layer.origin}){near}.")
            values[key.removeprefix(f"{STUDY}.")], origins[key] = value, layer.origin
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        key, problem = f"{STUDY}.{name}", first["msg"][0].lower() + first["msg"][1:]
        raise UserError(f"{key} = {values.get(name)!r} ({origins.get(key, 'default')}): {problem}.") from None


def is_study_setting(text: str) -> bool:
    return text.strip().startswith(f"{STUDY}.")
