"""`ccp list`: what there is to choose from, and the one line that describes each."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, print_json
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation import own_code
from ccp_dml.foundation.digests import digest
from ccp_dml.foundation.files import cache_home, from_json, write_json


class Kind(StrEnum):
    """What `ccp list` can list."""

    datasets = "datasets"
    losses = "losses"
    methods = "methods"
    backbones = "backbones"
    modes = "modes"
    recipes = "recipes"
    studies = "studies"


def list_things(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(Kind)}.")],
    part: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="Only names that contain this, such as resnet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what there is to choose from: data sets, modes, methods, losses, backbones, recipes, studies.

    Examples:

    - `ccp list methods`
    - `ccp list backbones resnet`
    - `ccp list losses --json`
    """
    entries = catalogue(kind.value)
    if part is not None:
        chosen = {name: text for name, text in entries.items() if part.lower() in name.lower()}
        if not chosen:
            near = did_you_mean(part, list(entries)) or f"; `ccp list {kind.value}` names all {len(entries):,}"
            raise UserError(f"None of the {kind.value} has {part!r} in its name{near}.")
        entries = chosen
    if as_json:
        print_json([{"name": name, "description": text} for name, text in entries.items()])
        return
    width = max((len(name) for name in entries), default=0)
    for name, text in entries.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())


def catalogue(kind: str) -> dict[str, str]:
    """Describe all datasets, losses, methods, backbones, modes, recipes or studies: name -> description.

    What takes seconds to import, because torch comes with it, is kept from the first time somebody asks.
    """
    if kind == "losses":
        from ccp_dml.config.loss_signatures import shipped_losses

        ours = {name: loss.summary.rstrip(".") for name, loss in shipped_losses().items()}
        theirs = remembered("losses", _losses_of_the_library, ("pytorch-metric-learning", "torch"), "losses")
        return ours | _plugins(own_code.LOSSES) | theirs
    if kind == "backbones":
        known = remembered("backbones", _backbones, ("timm",), "models")
        return known | _plugins(own_code.BACKBONES)
    if kind == "studies":
        return remembered("studies", _studies, (), "studies")
    recipes = shipped_recipes() if kind == "recipes" else shipped_recipes(kind)
    found = {name: first_line(file.read_text(encoding="utf-8")) for name, file in recipes.items()}
    return found | (_plugins(own_code.DATASETS) if kind == "datasets" else {})


def _plugins(group: str) -> dict[str, str]:
    points = own_code.plugins(group)
    return {name: f"of the package {point.dist.name if point.dist else point.module}" for name, point in points.items()}


def _losses_of_the_library() -> dict[str, str]:
    from ccp_dml.losses.pml import describe, pml_losses
    from ccp_dml.runs.arguments import PREFIX

    with warnings.catch_warnings(action="ignore"):  # the library's own code is tried, and warns of itself
        return {PREFIX + name: describe(name) for name in pml_losses()}


def _backbones() -> dict[str, str]:
    from ccp_dml.models.backbones import list_backbones

    return dict.fromkeys(list_backbones(), "")


def _studies() -> dict[str, str]:
    from ccp_dml.studies import STUDIES

    return {name: study.question for name, study in STUDIES.items()}


def remembered(
    name: str, compute: Callable[[], dict[str, str]], packages: tuple[str, ...], room: str
) -> dict[str, str]:
    """Return what `compute` returns; from the cache, if neither `packages` nor the code of the `room` have changed."""
    folder = Path(str(resources.files("ccp_dml") / room))
    sources = [f"{file.name} {file.stat().st_mtime_ns}" for file in sorted(folder.rglob("*.py"))]
    file = cache_home() / "lists" / f"{name}-{digest(*(version(one) for one in packages), *sources)}.json"
    with suppress(OSError, ValueError):
        kept = from_json(file.read_text(encoding="utf-8"))
        if isinstance(kept, dict) and all(isinstance(text, str) for text in kept.values()):
            return kept
    computed = compute()
    with suppress(OSError):  # a cache that cannot be written costs seconds, nothing else
        write_json(file, computed)
    return computed


def first_line(text: str) -> str:
    """Cut out a docstring's or recipe's first sentence."""
    return text.strip().split("\n", 1)[0].lstrip("# ").rstrip(".")
