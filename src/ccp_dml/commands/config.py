"""`ccp config`: what is in force, who set it, and what each key means."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccp_dml.commands.console import Json, Settings, complete_recipe, print_json, warn

if TYPE_CHECKING:
    from ccp_dml.config.description import KeyDescription
    from ccp_dml.config.layers import Resolved


def config(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [MODE] [METHOD] [KEY]...",
            help="Recipes as for `ccp train`; keys such as optim.lr, or sections such as optim, to explain.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="For every key: what it means, its value, and which recipe set it.")
    ] = False,
) -> None:
    """Show the settings that a training would have, or explain a key; nothing is trained.

    Examples:

    - `ccp config glyphs c2-ccp --set optim.lr=1e-4`
    - `ccp config cub c2-ccp --explain`
    - `ccp config optim.lr`
    """
    import tomli_w

    from ccp_dml.config.layers import resolve
    from ccp_dml.config.readers import unread_settings, written_by_user
    from ccp_dml.config.recipes import refuse_disorder
    from ccp_dml.runs.arguments import complete

    named, keys = told_apart(recipes or [])
    refuse_disorder(named)
    resolved = resolve(named, settings or [])
    tables = complete(resolved.config).as_tables()
    for sentence in unread_settings([resolved.config], written_by_user(resolved)):
        warn(f"{sentence}.")
    if not keys and not explain:
        return print_json(tables) if as_json else typer.echo(tomli_w.dumps(tables), nl=False)
    explained = all_keys(resolved, tables)
    if keys:
        explained = {key: one for key, one in explained.items() if key in keys or key.partition(".")[0] in keys}
    if as_json:
        return print_json(explained)
    return print_keys(explained) if keys else print_explained(explained)


def told_apart(given: list[str]) -> tuple[list[str], list[str]]:
    """Tell recipes from keys such as optim.lr or lr and sections such as optim; refuse a key that there is not."""
    from ccp_dml.config.layers import keys_called, refuse_unknown
    from ccp_dml.config.recipes import is_recipe_file, shipped_recipes
    from ccp_dml.config.schema import Config

    recipes: list[str] = []
    keys: list[str] = []
    for name in given:
        if name in shipped_recipes() or is_recipe_file(name) or name.endswith(".toml") or "," in name:
            recipes.append(name)
        elif name in Config.model_fields:
            keys.append(name)
        elif called := keys_called(name):
            keys += called
        elif name.partition(".")[0] in Config.model_fields and "." in name:
            refuse_unknown(name, "what should be explained")
            keys.append(name)
        else:
            recipes.append(name)
    return recipes, keys


def all_keys(resolved: "Resolved", tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Describe every key, with the value in force and who set it; the value of an unset key is None."""
    from ccp_dml.config.description import describe_arguments, describe_keys
    from ccp_dml.config.layers import flatten
    from ccp_dml.runs.arguments import settable_parameters

    values, loss = dict(flatten(tables)), tables["loss"]["name"]
    described: dict[str, KeyDescription] = {}
    for key, one in describe_keys().items():
        described[key] = one
        if key == "loss.name":
            described |= describe_arguments(loss, settable_parameters(loss))
    found: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys([*described, *values]):
        found[key] = {"value": values.get(key), "origin": resolved.origins.get(key, "default")}
        if key in described:  # all but arguments of one's own classes
            one = described[key]
            found[key] |= {"meaning": one.meaning, "type": one.type, "default": one.default}
    return found


def print_explained(explained: dict[str, dict[str, Any]]) -> None:
    """Print a line for the value of each key, and one for its meaning."""
    for key, one in explained.items():
        if one.get("meaning"):
            typer.echo(f"# {one['meaning']}")
        typer.echo(
            f"{key} = {shown(one['value'])}  # {one['origin']}" if one["value"] is not None else f"# {key} is unset"
        )


def print_keys(explained: dict[str, dict[str, Any]]) -> None:
    """Print all that is known about each key: meaning, type, default, value in force, and who sets it."""
    from ccp_dml.config.description import recipes_that_set

    for number, (key, one) in enumerate(explained.items()):
        typer.echo(f"{'' if number == 0 else chr(10)}{key}: {one.get('meaning', 'argument of a class of your own')}")
        rows = {
            "type": one.get("type"),
            "default": shown(one.get("default")),
            "value": f"{shown(one['value'])} ({'nobody set it' if one['origin'] == 'default' else one['origin']})",
            "set by": ", ".join(f"{name} ({shown(value)})" for name, value in recipes_that_set(key).items()),
        }
        for title, text in rows.items():
            if text:
                typer.echo(f"  {title:<8} {text}")


def shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)
