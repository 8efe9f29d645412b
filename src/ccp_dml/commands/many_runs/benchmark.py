"""`ccp benchmark`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ccp_dml.commands.console import Json, Settings, err, out, print_json
from ccp_dml.commands.many_runs.plans import (
    Cluster,
    ShowPlan,
    Workers,
    alone_with_plan,
    chosen_runner,
    failed_values,
    refuse_mistakes,
    show_failures,
    show_plan,
)
from ccp_dml.errors import UserError


class ProtocolName(StrEnum):
    mlrc = "mlrc"
    conventional = "conventional"


def benchmark(
    protocol: Annotated[
        ProtocolName,
        typer.Argument(metavar="PROTOCOL", help="mlrc: four folds at 128-D; conventional: one network at 512-D."),
    ],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="NAME",
            help="A data set recipe (`ccp list datasets`), with a mode where it needs one: folder,frozen.",
        ),
    ],
    methods: Annotated[
        str, typer.Option("--methods", metavar="A,B,...", help="Method recipes; see `ccp list methods`.")
    ],
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, metavar="N", help="Train everything N times, with other seeds.")
    ] = 1,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The benchmark's folder; default runs/PROTOCOL-DATA.")
    ] = None,
    plan: ShowPlan = False,
    workers: Workers = None,
    cluster: Cluster = None,
    settings: Settings = None,
    paper: Annotated[
        str | None,
        typer.Option(
            "--paper",
            metavar="NAME",
            help="Show the paper's scores on cub, cars196, sop or inshop beside data of another name.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train several methods under one protocol and compare them in a table.

    Interrupted, the same command goes on where it stopped.

    Examples:

    - `ccp benchmark mlrc --data glyphs --methods c2,c2-ccp --repeats 2`
    - `ccp benchmark mlrc --data glyphs --methods ms,ms-proxy,ms-ccp --plan`
    - `ccp benchmark conventional --data cub --methods c2-ccp --set data.root=DIR`
    """
    from ccp_dml.benchmark.formats import as_terminal, table_values
    from ccp_dml.benchmark.outcome import unlike_trainings, write_outcome
    from ccp_dml.benchmark.page import write_benchmark_report
    from ccp_dml.benchmark.protocols import plan_conventional, plan_mlrc
    from ccp_dml.benchmark.request import BenchmarkRun, default_folder, extend
    from ccp_dml.commands.many_runs.plan_progress import PlanProgress
    from ccp_dml.config.recipes import parse_data, parse_methods, recipe_label
    from ccp_dml.plans.plan import PlannedRun
    from ccp_dml.plans.runner import execute
    from ccp_dml.records import layout
    from ccp_dml.records.benchmark_folder import BenchmarkFolder, BenchmarkRequest, write_request

    wanted = BenchmarkRequest(
        protocol.value, parse_data(data), parse_methods(methods), repeats, tuple(settings or ()), paper
    )
    folder = out_folder or default_folder(wanted)
    plan_runs = plan_mlrc if protocol is ProtocolName.mlrc else plan_conventional
    labels = [recipe_label(method) for method in wanted.methods]

    def plan_now() -> tuple[BenchmarkRequest, list[BenchmarkRun], list[BenchmarkRun], list[PlannedRun]]:
        """Plan all that this folder was asked for; choose what this command asks for, and what is left of that."""
        whole = extend(folder, wanted)
        refuse_unknown_paper(whole.paper)
        planned = plan_runs(whole, folder)
        own = [one for one in planned if one.method in labels and one.repeat < repeats]
        return whole, planned, own, [one.run for one in own if not one.run.is_done]

    _, planned, own, left = plan_now()
    refuse_mistakes(folder, [one.run for one in planned], left, settings or [])
    if plan:
        return show_plan(own, folder, as_json, " ".join(unlike_trainings(own)))
    runner = chosen_runner(folder, workers, cluster)
    with alone_with_plan("benchmark", folder, left):
        whole, planned, own, left = plan_now()
        write_request(folder, whole)
        with PlanProgress(err, folder / layout.LOG, len(own), len(own) - len(left)) as progress:
            failures = execute(left, runner, progress)
        table = write_outcome(whole, planned, folder)
        page = write_benchmark_report(BenchmarkFolder.read(folder), folder / layout.REPORT)
    if as_json:
        told = {"folder": str(folder), "table": table_values(table), "notes": table.notes}
        print_json({**told, "failed": failed_values(failures)})
    elif table.columns:
        out.print(as_terminal(table))
        out.print(
            f"Tables: {folder / layout.TABLE_MARKDOWN}, .csv, .tex    Results: {folder / layout.RESULTS}",
            soft_wrap=True,
        )
        out.print(f"Report: {page}", soft_wrap=True)
    if failures:
        show_failures(failures, len(own))
        raise typer.Exit(1)
    return None


def refuse_unknown_paper(name: str | None) -> None:
    from ccp_dml.benchmark.paper import DATASETS
    from ccp_dml.errors import did_you_mean

    if name is not None and name not in DATASETS:
        known = did_you_mean(name, list(DATASETS)) or f"; there are {', '.join(DATASETS)}"
        raise UserError(f"--paper: the paper has no data set {name!r}{known}.")
