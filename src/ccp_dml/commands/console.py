"""Options and output that commands share."""

import io
import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from ccp_dml.commands.failures import explain_usage
from ccp_dml.errors import UserError, is_text


class Command(TyperCommand):
    """A command whose help writes arguments as a person types them, without the types of Python."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = _nothing  # type: ignore[attr-defined]
            elif getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""  # a switch takes no value

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed; what cannot be read is explained in the words of a person."""
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            takes_settings = any("--set" in parameter.opts for parameter in self.params)
            explain_usage(error, typed, takes_settings)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 as the library calls it
        """List what follows the command's name: arguments in their order, then options."""
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        return [*(one.metavar or str(one.name).upper() for one in arguments), "[OPTIONS]"]

    def get_help_option(self, ctx: Any) -> Any:
        """Make --help, another switch."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


class Group(TyperGroup):
    """A group of commands whose help shows switches without types, and which takes `help` and `version` as words."""

    def get_params(self, ctx: Any) -> list[Any]:
        """List the options, which are switches: they take no value."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.metavar = ""
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `help COMMAND` as `COMMAND --help`, and `version` as `--version`."""
        if args and args[0] == "help":
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)


def _nothing(ctx: Any) -> str:  # noqa: ARG001
    return ""


def with_plain_usage(app: typer.Typer) -> typer.Typer:
    """Let every command of an app be a `Command`."""
    for registered in app.registered_commands:
        registered.cls = Command
    return app


# Paths and names are printed as they are: `exp[lr=1]` is a folder, and no markup.
AS_IT_IS: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
out = Console(**AS_IT_IS)
err = Console(stderr=True, **AS_IT_IS)


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
        metavar="DATA [MODE] METHOD",
        help="Names (`ccp list recipes`) or TOML files of your own; what stands further right wins.",
        autocompletion=complete_recipe,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting (`ccp config KEY` explains it); may be repeated.",
        autocompletion=complete_setting,
    ),
]
MovedFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Where a file of the run is now, if it has moved: model.weights=FILE, data.root=DIR; may be repeated.",
        autocompletion=complete_setting,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Let code that the run brings along be run; read it first.")
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where to compute: auto, cpu, cuda or cuda:N.")]
ModelOption = Annotated[
    Path | None, typer.Option("--model", metavar="MODEL", help="Where the index's model is now, if it has moved.")
]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `ccp train` wrote.")]


def warn(text: str) -> None:
    """Say what a user should know, beside the result."""
    err.print(text, style="yellow", soft_wrap=True)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_any_name() -> None:
    """Let standard output show bytes of names that are not UTF-8 as escapes, in which JSON stays JSON."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def refuse_stray_bytes(folder: Path) -> None:
    """Raise if the name of a folder to train in is no text: the libraries that write weights could not open it."""
    if not is_text(str(folder)):
        name = ascii(str(folder))
        raise UserError(f"--out: {name} holds bytes that are not text in UTF-8; give another folder.")


def take_termination_as_interrupt() -> None:
    """Let a `kill` or a closed terminal end the command as Ctrl-C does: it tidies up and says how to go on."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        is_unwanted = name == "SIGHUP" and number is not None and signal.getsignal(number) == signal.SIG_IGN  # nohup
        if number is not None and not is_unwanted:
            signal.signal(number, _interrupt)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
