"""The command `ccp`: which commands there are, and how each way to fail becomes an exit code."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from ccp_dml.commands.cache import cache
from ccp_dml.commands.certify import certify
from ccp_dml.commands.config import config
from ccp_dml.commands.console import err, with_plain_usage
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

app = typer.Typer(
    no_args_is_help=True,
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
    """Deep metric learning with chance constraints: train, compare and explain embeddings."""


app.command(no_args_is_help=True)(train)
app.command()(config)
app.command()(evaluate)
app.command()(certify)
app.command()(embed)
app.command()(compare)
app.command()(export)
app.command("list")(list_things)
app.command()(report)
app.command()(benchmark)
app.command()(study)
app.command()(search)
app.command()(serve)
app.command()(cache)
app.command()(doctor)
app.add_typer(with_plain_usage(data_app), name="data")
app.add_typer(with_plain_usage(index_app), name="index")
with_plain_usage(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 0 done, 2 a user's mistake, 130 interrupted, 1 anything else."""
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
    sys.exit(main())
