"""The command `ccp`: parse, call, print. Heavy imports wait until a command needs them."""

import json
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console

from ccp_dml.errors import NonFiniteError, UserError

app = typer.Typer(
    help="Deep metric learning with chance constraints: train, compare and explain embeddings.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
out = Console()
err = Console(stderr=True)

Recipes = Annotated[
    list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Shipped names or TOML files, layered left to right.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `ccp train` wrote.")]


class Kind(StrEnum):
    """What `ccp list` can list."""

    datasets = "datasets"
    losses = "losses"
    methods = "methods"
    backbones = "backbones"
    recipes = "recipes"
    studies = "studies"


@app.command()
def train(
    recipes: Recipes = None,
    settings: Settings = None,
    out_folder: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run's folder.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Same as --set run.seed=N.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out exactly where it stopped.")
    ] = False,
) -> None:
    """Train one network, score it on unseen classes, write a report.

    Example: `ccp train glyphs c2-ccp --seed 1 --out runs/first`
    """
    from ccp_dml.experiments.build import complete
    from ccp_dml.experiments.logbook import Logbook, free_folder
    from ccp_dml.experiments.training import train as run
    from ccp_dml.layers import resolve
    from ccp_dml.progress import ProgressWatcher

    if resume and out_folder is None:
        raise UserError("--resume needs --out DIR, the folder of the run to continue.")
    given = bool(recipes or settings or seed is not None)
    wanted = complete(resolve(recipes or [], settings or [], seed).config) if given or not resume else None
    folder = out_folder or free_folder(recipes or ["run"])
    if resume:
        logbook = Logbook.reopen(folder)
        config = logbook.config() if wanted is None else logbook.continue_with(wanted)
        if logbook.result is not None and wanted is None:
            err.print(f"{folder} is finished already.", highlight=False)
            return print_result(folder, logbook.result)
    else:
        assert wanted is not None
        config = wanted
        logbook = Logbook.open_new(folder, config, ["ccp", *sys.argv[1:]])
    watcher = ProgressWatcher(err)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        result = run(config, logbook, watcher, resume=resume)
    except KeyboardInterrupt:
        watcher.close()
        err.print(f"Interrupted; continue with: ccp train --resume --out {folder}", highlight=False, soft_wrap=True)
        raise
    finally:
        watcher.close()
    return print_result(folder, result)


def _as_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def print_result(folder: Path, result: dict[str, Any]) -> None:
    """The readable end of a run: the scores, where the files are, what to type next."""
    from ccp_dml.reports.run_folder import RunFolder
    from ccp_dml.reports.tables import comparison_table

    out.print(comparison_table([RunFolder.read(folder)]))
    test = result["test"]
    out.print(
        f"{test['queries']} test queries"
        + (f" ({test['skipped']} more have no true reference and are left out)" if test.get("skipped") else "")
        + f", best evaluation at step {result['best_step']} of {result['steps']}, {result['problems']} problem(s).",
        highlight=False,
    )
    out.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)
    out.print(f"Next:   ccp report {folder} OTHER_RUN   compares runs", highlight=False, soft_wrap=True)
    out.print(f"        ccp evaluate {folder} --json    scores for scripts", highlight=False, soft_wrap=True)


@app.command()
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

    from ccp_dml.experiments.build import complete
    from ccp_dml.layers import flatten, resolve

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


@app.command()
def evaluate(runs: Runs, as_json: Json = False) -> None:
    """Score runs on the test half; several also in the mean (separated) and as an ensemble (concatenated).

    Example: `ccp evaluate runs/fold0 runs/fold1 runs/fold2 runs/fold3 --json`
    """
    from ccp_dml.experiments.scoring import evaluate_runs
    from ccp_dml.reports.tables import evaluation_table

    scores = evaluate_runs(runs)
    if as_json:
        print_json(scores)
    else:
        out.print(evaluation_table(scores))


@app.command("list")
def list_things(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: Json = False) -> None:
    """List what there is to choose from.

    Example: `ccp list recipes`
    """
    from ccp_dml.experiments.catalogue import catalogue

    entries = catalogue(kind.value)
    if as_json:
        print_json([{"name": name, "description": text} for name, text in entries.items()])
        return
    width = max((len(name) for name in entries), default=0)
    for name, text in entries.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())


@app.command()
def report(
    runs: Runs,
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write the page.")] = None,
) -> None:
    """Write a self-contained page about one run, or comparing several.

    Example: `ccp report runs/c2 runs/c2-ccp --out comparison.html`
    """
    from ccp_dml.reports.page import write_report

    target = out_file or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    out.print(f"Report: {write_report(runs, target)}", highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 0 done, 2 a user's mistake, 130 interrupted, 1 anything else."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UserError as error:
        err.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except NonFiniteError as error:
        err.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 130


def run() -> None:
    sys.exit(main())
