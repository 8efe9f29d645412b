"""`ccp list`."""

from enum import StrEnum
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, print_json


class Kind(StrEnum):
    """What `ccp list` can list."""

    datasets = "datasets"
    losses = "losses"
    methods = "methods"
    backbones = "backbones"
    recipes = "recipes"
    studies = "studies"


def list_things(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: Json = False) -> None:
    """List what there is to choose from.

    Example: `ccp list recipes`
    """
    from ccp_dml.commands.catalogue import catalogue

    entries = catalogue(kind.value)
    if as_json:
        print_json([{"name": name, "description": text} for name, text in entries.items()])
        return
    width = max((len(name) for name in entries), default=0)
    for name, text in entries.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())
