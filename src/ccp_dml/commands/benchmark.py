"""`ccp benchmark`."""

import signal
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ccp_dml.commands.console import Json, Settings, err, out, print_json
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from ccp_dml.experiments.benchmark import BenchmarkRun
    from ccp_dml.experiments.runner import Failure


class ProtocolName(StrEnum):
    mlrc = "mlrc"
    conventional = "conventional"


def benchmark(
    protocol: Annotated[ProtocolName, typer.Argument(help="How to train, select and report.")],
    data: Annotated[str, typer.Option("--data", metavar="NAME", help="A data set recipe; see `ccp list datasets`.")],
    methods: Annotated[
        str, typer.Option("--methods", metavar="A,B,...", help="Method recipes; see `ccp list methods`.")
    ],
    repeats: Annotated[int, typer.Option("--repeats", min=1, metavar="N", help="Train everything N times.")] = 1,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The benchmark's folder; default runs/PROTOCOL-DATA.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="List the runs and what is done; train nothing.")] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", help="Runs trained at once; default: one per CUDA device."),
    ] = None,
    settings: Settings = None,
    paper: Annotated[
        str | None,
        typer.Option("--paper", metavar="NAME", help="Compare with the paper's cub, cars196, sop or inshop."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare methods under a protocol. The same command continues what was interrupted.

    Example: `ccp benchmark mlrc --data cub --methods c2,c2-xbm,c2-ccp --set data.root=DIR`
    """
    from ccp_dml.experiments.benchmark import Benchmark, default_folder, extend, method_label, parse_data, parse_methods
    from ccp_dml.experiments.conventional import plan_conventional
    from ccp_dml.experiments.mlrc import plan_mlrc
    from ccp_dml.experiments.outcome import write_outcome
    from ccp_dml.experiments.plan import refuse_changed
    from ccp_dml.reports.benchmark_formats import as_terminal, table_values

    refuse_unknown_paper(paper)
    wanted = Benchmark(protocol.value, parse_data(data), parse_methods(methods), repeats, tuple(settings or ()))
    folder = out_folder or default_folder(wanted)
    whole = extend(folder, wanted)
    planned = (plan_mlrc if protocol is ProtocolName.mlrc else plan_conventional)(whole, folder)
    refuse_changed([one.run for one in planned])
    labels = [method_label(method) for method in wanted.methods]
    asked_for = [one for one in planned if one.method in labels and one.repeat < repeats]
    if plan:
        return show_plan(asked_for, folder, as_json)
    failures = train_all(asked_for, folder, whole, workers)
    table = write_outcome(whole, planned, folder, paper)
    if as_json:
        print_json({"folder": str(folder), "table": table_values(table), "failed": failed_values(failures)})
    elif table.columns:
        out.print(as_terminal(table))
        out.print(f"Tables: {folder / 'table.md'}, .csv, .tex    Results: {folder / 'results.csv'}", soft_wrap=True)
    if failures:
        show_failures(failures, total=len(asked_for))
        raise typer.Exit(1)
    return None


def train_all(
    asked_for: "Sequence[BenchmarkRun]", folder: Path, whole: Any, workers: int | None
) -> "Sequence[Failure]":
    """Check all runs that are left, then train them."""
    import torch

    from ccp_dml.experiments.benchmark import write_down
    from ccp_dml.experiments.locks import lock
    from ccp_dml.experiments.plan import standing
    from ccp_dml.experiments.rehearsal import rehearse
    from ccp_dml.experiments.runner import execute
    from ccp_dml.plan_progress import PlanProgress

    runs = [one.run for one in asked_for]
    left = [run for run in runs if standing(run.folder).state != "done"]
    for note in rehearse(left):
        err.print(note, style="yellow", highlight=False, markup=False)
    signal.signal(signal.SIGTERM, _as_interrupt)
    with lock(folder / ".lock", f"{folder} is in use by another `ccp benchmark`; wait for it, or give --out another."):
        write_down(folder, whole)
        try:
            with PlanProgress(err, folder / "log.txt", len(runs), len(runs) - len(left)) as progress:
                return execute(left, workers or max(1, torch.cuda.device_count()), progress)
        except KeyboardInterrupt:
            err.print("Interrupted; the same command continues it.", highlight=False)
            raise


def _as_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def refuse_unknown_paper(name: str | None) -> None:
    from ccp_dml.layers import nearest
    from ccp_dml.reports.published import DATASETS

    if name is not None and name not in DATASETS:
        known = nearest(name, list(DATASETS)) or f"; there are {', '.join(DATASETS)}"
        raise UserError(f"--paper: the paper has no data set {name!r}{known}.")


def show_plan(planned: "Sequence[BenchmarkRun]", folder: Path, as_json: bool) -> None:
    """The runs, their cost in steps, and how far each has come."""
    from ccp_dml.experiments.plan import standing

    standings = [standing(one.run.folder) for one in planned]
    if as_json:
        runs = [
            {
                "name": one.run.name,
                "method": one.method,
                "repeat": one.repeat,
                "fold": one.fold,
                "seed": one.run.config.run.seed,
                "steps": one.run.steps,
                "state": how.state,
                "steps_done": how.step,
                "folder": str(one.run.folder),
                "recipes": list(one.run.recipes),
                "settings": list(one.run.settings),
            }
            for one, how in zip(planned, standings, strict=True)
        ]
        return print_json({"folder": str(folder), "runs": runs, "totals": plan_totals(planned)})
    table = Table(title=f"{folder}: {len(planned)} runs")
    for title in ("run", "seed", "steps", "state"):
        table.add_column(title, justify="left" if title in ("run", "state") else "right")
    for one, how in zip(planned, standings, strict=True):
        state = f"{how.state}, at step {how.step}" if how.state == "partly" else how.state
        steps = "until patience" if one.run.steps is None else f"{one.run.steps:,}"
        table.add_row(one.run.name, str(one.run.config.run.seed), steps, state)
    out.print(table)
    totals = plan_totals(planned)
    cost = "until patience" if totals["steps_left"] is None else f"at most {totals['steps_left']:,} steps"
    out.print(
        f"{totals['done']} done, {totals['partly']} partly, {totals['open']} open; left to train: {cost}.",
        highlight=False,
    )
    return None


def plan_totals(planned: "Sequence[BenchmarkRun]") -> dict[str, int | None]:
    """How many runs are in which state, and the steps left; None where patience decides about some of them."""
    from ccp_dml.experiments.plan import standing

    standings = [(one.run.steps, standing(one.run.folder)) for one in planned]
    states = [how.state for _, how in standings]
    left = [None if steps is None else steps - how.step for steps, how in standings if how.state != "done"]
    known = [steps for steps in left if steps is not None]
    return {
        **{state: states.count(state) for state in ("done", "partly", "open")},
        "steps_left": sum(known) if len(known) == len(left) else None,
    }


def failed_values(failures: "Sequence[Failure]") -> list[dict[str, str]]:
    return [{"name": one.run.name, "message": one.message, "folder": str(one.run.folder)} for one in failures]


def show_failures(failures: "Sequence[Failure]", total: int) -> None:
    from ccp_dml.experiments.worker import LOG

    err.print(f"{len(failures)} of {total} runs failed; the same command tries them again:", style="red")
    for one in failures:
        text = f"  {one.run.name}: {one.message} (log: {one.run.folder / LOG})"
        err.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
