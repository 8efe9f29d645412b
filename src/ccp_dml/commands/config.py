"""`ccp config`."""

import json
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, Recipes, Settings, print_json


def config(
    recipes: Recipes = None,
    settings: Settings = None,
    as_json: Json = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say which file or option set each value.")] = False,
) -> None:
    """Show the resolved configuration; nothing is trained.

    Example: `ccp config glyphs c2-ccp --set optim.lr=1e-4 --explain`
    """
    import tomli_w

    from ccp_dml.config.layers import flatten, resolve
    from ccp_dml.runs.loss_arguments import complete

    resolved = resolve(recipes or [], settings or [])
    tables = complete(resolved.config).as_tables()
    if as_json and explain:
        print_json(
            {key: {"value": value, "origin": resolved.origins.get(key, "default")} for key, value in flatten(tables)}
        )
    elif as_json:
        print_json(tables)
    elif explain:
        for key, value in flatten(tables):
            typer.echo(f"{key} = {json.dumps(value)}  # {resolved.origins.get(key, 'default')}")
    else:
        typer.echo(tomli_w.dumps(tables), nl=False)
