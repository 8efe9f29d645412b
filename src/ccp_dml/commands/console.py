"""Options and output that commands share."""

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)


def complete_recipe(incomplete: str) -> list[str]:
    """Offer the shipped recipes to the shell; files of one's own it completes by itself."""
    from ccp_dml.config.recipes import shipped_recipes

    return [name for name in shipped_recipes() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Offer the keys of the configuration to the shell."""
    from ccp_dml.config.layers import known_keys

    return [f"{key}=" for key in known_keys() if key.startswith(incomplete)]


Recipes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE]...",
        help="Shipped names or TOML files, layered left to right.",
        autocompletion=complete_recipe,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.", autocompletion=complete_setting
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run the code of others that the run was trained with; read it first.")
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `ccp train` wrote.")]


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def take_termination_as_interrupt() -> None:
    """Let a `kill` end the command as Ctrl-C does: it tidies up and says how to go on."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
