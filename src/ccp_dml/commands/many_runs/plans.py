"""Show a plan, hold the lock under which it is trained, tell what failed: for commands that train many runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ccp_dml.commands.console import err, out, print_json, refuse_stray_bytes, take_termination_as_interrupt
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import file_in_the_way

if TYPE_CHECKING:
    from ccp_dml.benchmark.request import BenchmarkRun
    from ccp_dml.plans.forecast import Forecast
    from ccp_dml.plans.plan import PlannedRun
    from ccp_dml.plans.runner import Failure, Runner
    from ccp_dml.studies.study import StudyRun

ShowPlan = Annotated[bool, typer.Option("--plan", help="List the runs, their cost and which are done; train nothing.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Runs trained at once; default: one per CUDA device."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="URI",
        help="Train on a Dask cluster: tcp://scheduler:8786, or local:N for N workers of this machine.",
    ),
]


def refuse_mistakes(
    folder: Path, runs: "Sequence[PlannedRun]", left: "Sequence[PlannedRun]", settings: Sequence[str]
) -> None:
    """Raise if `folder` cannot be written, or if runs in it were begun with other settings, weights or data.

    `left` are the runs to train. A plan that is only shown is refused for the same reasons as one that is trained.
    """
    from ccp_dml.plans.plan import refuse_other_settings, refuse_unread_settings
    from ccp_dml.plans.rehearsal import have_moved, refuse_other_backbones, refuse_other_data

    refuse_stray_bytes(folder)
    refuse_unread_settings(runs, settings)
    refuse_other_settings(runs)
    if (file := file_in_the_way(folder / ".lock")) is not None:
        raise UserError(f"{folder} cannot be written, because {file} is a file; give --out another folder.")
    refuse_other_backbones(runs)
    if left or have_moved(runs):  # tables of finished runs can be made without the data
        refuse_other_data(runs)


@contextmanager
def alone_with_plan(noun: str, folder: Path, left: "Sequence[PlannedRun]") -> Iterator[None]:
    """Check the runs that are `left`; then no other command works in `folder` while the block runs.

    The check may take long, and another command may have worked there meanwhile: the block reads the folder's request
    anew, trains, and writes the outcome.
    """
    from ccp_dml.commands.progress import ProgressWatcher
    from ccp_dml.foundation.locks import lock
    from ccp_dml.plans.rehearsal import rehearse

    take_termination_as_interrupt()
    watcher = ProgressWatcher(err)
    try:
        for note in rehearse(left, watcher):
            watcher.note(note)
    finally:
        watcher.close()
    with lock(folder / ".lock", f"{folder} is in use by another `ccp {noun}`; wait for it, or give --out another."):
        try:
            yield
        except KeyboardInterrupt:
            err.print("Interrupted; the same command continues it.")
            raise


def chosen_runner(folder: Path, workers: int | None, cluster: str | None) -> "Runner":
    """Choose who trains the runs in `folder`: worker processes of this machine, or a cluster."""
    import torch

    from ccp_dml.plans.runner import LocalRunner

    if cluster is None:
        return LocalRunner(workers or max(1, torch.cuda.device_count()))
    if workers is not None:
        raise UserError("--workers: a cluster has the workers that were started for it; leave it out, or --cluster.")
    try:
        from ccp_dml.plans.cluster import ClusterRunner
    except ModuleNotFoundError as error:
        raise UserError(f"--cluster needs {error.name}: pip install 'ccp-dml[cluster]'.") from None
    return ClusterRunner(cluster, folder)


def forecast_text(found: "Forecast", runs: int) -> str:
    """Say how long the runs that are left will take, and what that leaves out."""
    from ccp_dml.plans.forecast import STEPS_SHOWN
    from ccp_dml.reports.words import duration

    patience = f", with {STEPS_SHOWN:,} steps for each of the {found.by_patience} that patience ends"
    features = f", {duration(found.features)} of it for features unless they are in the cache"
    return (
        f"About {duration(found.seconds)} for {runs} runs on this machine, one at a time"
        + (patience if found.by_patience else "")
        + (features if found.features else "")
        + "; measured on a few steps. The selection of proxies, the start of a worker, maps and pages come on top."
    )


def show_plan(
    planned: "Sequence[StudyRun | BenchmarkRun]",
    folder: Path,
    as_json: bool,
    note: str = "",
    to_come: "Sequence[PlannedRun]" = (),
) -> None:
    """Check the runs; print them, their cost in steps and time, and how far each has come.

    `note` tells what is not known yet. `to_come` stand for runs that are not: they count, and are not listed.
    """
    from ccp_dml.plans.forecast import forecast
    from ccp_dml.plans.plan import state_of
    from ccp_dml.plans.rehearsal import check

    everything = [*(one.run for one in planned), *to_come]
    left = [run for run in everything if not run.is_done]
    told, found = (check(left), forecast(left)) if left else ([], None)
    states = [state_of(one.run.folder) for one in planned]
    totals = plan_totals(everything)
    if as_json:
        runs = [
            {
                "name": one.run.name,
                **one.coordinates,
                "seed": one.run.config.run.seed,
                "steps": one.run.steps,
                "state": how.state,
                "steps_done": how.step,
                "folder": str(one.run.folder),
                "recipes": list(one.run.recipes),
                "settings": list(one.run.settings),
            }
            for one, how in zip(planned, states, strict=True)
        ]
        more = {"note": note} if note else {}
        cost = {**totals, "seconds_left": 0.0 if found is None else found.seconds}
        return print_json({"folder": str(folder), "runs": runs, "totals": cost, "notes": told, **more})
    table = Table(title=f"{folder}: {len(planned)} runs")
    for title in ("run", "seed", "steps", "state"):
        table.add_column(title, justify="left" if title in ("run", "state") else "right")
    for one, how in zip(planned, states, strict=True):
        state = f"{how.state}, at step {how.step}" if how.state == "partly" else how.state
        steps = "until patience" if one.run.steps is None else f"{one.run.steps:,}"
        table.add_row(one.run.name, str(one.run.config.run.seed), steps, state)
    if planned:
        out.print(table)
    to_train = "until patience" if totals["steps_left"] is None else f"at most {totals['steps_left']:,} steps"
    out.print(
        f"{totals['done']} done, {totals['partly']} partly, {totals['open']} open; left to train: {to_train}.",
    )
    if found is not None:
        out.print(forecast_text(found, len(left)), soft_wrap=True)
    for text in [*told, *([note] if note else [])]:
        out.print(text, soft_wrap=True)
    return None


def plan_totals(runs: "Sequence[PlannedRun]") -> dict[str, int | None]:
    """Count the runs in each state, and the steps left; None if patience decides about some of them."""
    from ccp_dml.plans.plan import state_of

    found = [(run.steps, state_of(run.folder)) for run in runs]
    states = [how.state for _, how in found]
    left = [None if steps is None else steps - how.step for steps, how in found if how.state != "done"]
    known = [steps for steps in left if steps is not None]
    return {
        **{state: states.count(state) for state in ("done", "partly", "open")},
        "steps_left": sum(known) if len(known) == len(left) else None,
    }


def failed_values(failures: "Sequence[Failure]") -> list[dict[str, str]]:
    return [{"name": one.run.name, "message": one.message, "folder": str(one.run.folder)} for one in failures]


def show_failures(failures: "Sequence[Failure]", total: int, then: str = "the same command tries them again") -> None:
    from ccp_dml.records import layout

    err.print(f"{len(failures)} of {total} runs failed; {then}:", style="red")
    for one in failures:
        text = f"  {one.run.name}: {one.message} (log: {one.run.folder / layout.LOG})"
        err.print(text, style="red", soft_wrap=True)
