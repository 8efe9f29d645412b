"""`ccp list`: what there is to choose from, and the one line that describes each."""

from enum import StrEnum
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, print_json
from ccp_dml.config.recipes import shipped_recipes


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

    entries = catalogue(kind.value)
    if as_json:
        print_json([{"name": name, "description": text} for name, text in entries.items()])
        return
    width = max((len(name) for name in entries), default=0)
    for name, text in entries.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())


def catalogue(kind: str) -> dict[str, str]:
    """Describe all datasets, losses, methods, backbones, recipes or studies: name -> description.

    What takes seconds to import is imported for those who ask about it.
    """
    if kind == "losses":
        from ccp_dml.losses import LOSSES, PROXY_LOSSES
        from ccp_dml.losses.pml import PREFIX, describe, pml_losses

        ours = {name: first_line(loss.__doc__ or "") for name, loss in (LOSSES | PROXY_LOSSES).items()}
        return ours | {PREFIX + name: describe(name) for name in pml_losses()}
    if kind == "backbones":
        from ccp_dml.models.backbones import list_backbones

        return dict.fromkeys(list_backbones(), "")
    if kind == "studies":
        from ccp_dml.studies import STUDIES

        return {name: study.question for name, study in STUDIES.items()}
    recipes = shipped_recipes() if kind == "recipes" else shipped_recipes(kind)
    return {name: first_line(file.read_text(encoding="utf-8")) for name, file in recipes.items()}


def first_line(text: str) -> str:
    """Cut out a docstring's or recipe's first sentence."""
    return text.strip().split("\n", 1)[0].lstrip("# ").rstrip(".")
