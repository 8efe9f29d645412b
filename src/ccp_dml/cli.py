"""The command `ccp`: which commands there are, and how each way to fail becomes an exit code."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ccp_dml.commands.cache import cache
from ccp_dml.commands.certify import certify
from ccp_dml.commands.config import config
from ccp_dml.commands.console import Group, err, print_any_name, with_plain_usage
from ccp_dml.commands.data import data_app
from ccp_dml.commands.doctor import doctor
from ccp_dml.commands.evaluate import evaluate
from ccp_dml.commands.failures import explain, ways_on
from ccp_dml.commands.listing import list_things
from ccp_dml.commands.many_runs.benchmark import benchmark
from ccp_dml.commands.many_runs.study import study
from ccp_dml.commands.report import report
from ccp_dml.commands.serving.compare import compare
from ccp_dml.commands.serving.embed import embed
from ccp_dml.commands.serving.export import export
from ccp_dml.commands.serving.index import index_app
from ccp_dml.commands.serving.search import search
from ccp_dml.commands.serving.serve import serve
from ccp_dml.commands.train import train
from ccp_dml.foundation.machine import keep_freed_memory

TRAIN, WORK, COMPARE, MACHINE = "Train and look", "Put a network to work", "Compare methods", "Data and machine"


class Overview(Group):
    """All commands in the order of their use; by itself the library puts `index` and `data`, which are groups, last."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 as the library calls it
        """List the commands, panel by panel, groups first."""
        panels = [TRAIN, WORK, COMPARE, MACHINE]

        def place(name: str) -> tuple[int, bool]:
            command: Any = self.commands[name]
            return panels.index(command.rich_help_panel), not isinstance(command, Group)

        return sorted(self.commands, key=place)


app = typer.Typer(
    cls=Overview,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ccp-dml {version('ccp-dml')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Deep metric learning with chance constraints: train, compare and explain embeddings.

    Begin with images in one folder per class: `ccp train folder frozen c2-ccp --set data.root=photos`
    """


app.command(no_args_is_help=True, rich_help_panel=TRAIN)(train)
app.command(rich_help_panel=TRAIN)(report)
app.command(rich_help_panel=TRAIN)(evaluate)
app.command(rich_help_panel=TRAIN)(certify)
app.command("list", rich_help_panel=TRAIN)(list_things)
app.command(rich_help_panel=TRAIN)(config)
app.add_typer(with_plain_usage(index_app), name="index", rich_help_panel=WORK)
app.command(rich_help_panel=WORK)(search)
app.command(rich_help_panel=WORK)(serve)
app.command(rich_help_panel=WORK)(compare)
app.command(rich_help_panel=WORK)(embed)
app.command(rich_help_panel=WORK)(export)
app.command(rich_help_panel=COMPARE)(benchmark)
app.command(rich_help_panel=COMPARE)(study)
app.add_typer(with_plain_usage(data_app), name="data", rich_help_panel=MACHINE)
app.command(rich_help_panel=MACHINE)(cache)
app.command(rich_help_panel=MACHINE)(doctor)
with_plain_usage(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 a user's mistake, 130 interrupted, 1 anything else."""
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:  # how Typer ends, well or with a wrong option
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        sentence, code = explain(error)
        err.print(f"Error: {sentence}", style="red", soft_wrap=True)
        for way_on in ways_on(error):
            err.print(way_on, soft_wrap=True)
        return code
    return 0


def run() -> None:
    keep_freed_memory()
    print_any_name()
    sys.exit(main())
