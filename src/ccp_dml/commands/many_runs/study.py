"""`ccp study`."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccp_dml.commands.console import Json, Settings, err, out, print_json, warn
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
from ccp_dml.errors import UserError, without_password

if TYPE_CHECKING:
    from ccp_dml.plans.plan import PlannedRun
    from ccp_dml.reports.study import StudyReport
    from ccp_dml.studies.request import StudyRequest
    from ccp_dml.studies.study import Conclusion, Study


TRAINED_ON_TEST = (
    "Some of the test classes also trained: what are called unseen classes here are new images of them, whose scores "
    "are higher."
)
SELECTED_ON_TEST = (
    "protocol.select_on = 'test': the test classes chose each run's best evaluation, so what is called validation here "
    "is the test half, and scores are not those of unseen classes."
)


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which study; see `ccp list studies`.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME", help="A data set recipe; default glyphs, for the study mnist MNIST."),
    ] = None,
    losses: Annotated[
        str, typer.Option("--loss", metavar="A,B,...", help="Losses to study: c1, c2, ms, triplet.")
    ] = "c2",
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", min=1, metavar="N", help="Train everything N times, with other seeds, to see what is chance."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, metavar="N", help="For search: points to try in all.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="FILE|URL", help="For search: trials that several machines share."),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The study's folder; default runs/study-NAME-DATA.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's settings instead of those that finish in minutes.")
    ] = False,
    plan: ShowPlan = False,
    workers: Workers = None,
    cluster: Cluster = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Answer one question about the method with figures, a table and a paragraph.

    Interrupted, the same command goes on where it stopped.

    Examples:

    - `ccp study alternating`
    - `ccp study pool --set "study.pool_per_class=[1, 4, 12]" --plan`
    - `ccp study search --loss ms --trials 40 --workers 2`
    """
    from ccp_dml.commands.many_runs.plan_progress import PlanProgress
    from ccp_dml.config.recipes import parse_data, parse_losses
    from ccp_dml.records import layout
    from ccp_dml.reports.study import write_study_report  # before hours of training, should it not be there
    from ccp_dml.studies.request import StudyRequest, extend, write_down

    chosen = study_named(name)
    if storage is not None and not chosen.uses_storage:
        raise UserError(f"--storage: the study {name} keeps no trials; leave it out.")
    if trials is not None and not chosen.uses_storage:
        raise UserError(f"--trials: the study {name} has none, its runs are planned; leave it out.")
    if repeats is not None and chosen.uses_storage:
        raise UserError(f"--repeats: the study {name} tries each point once; use --trials for more points.")
    counts = {"study.repeats": repeats, "study.trials": trials}
    all_settings = (*(settings or ()), *(f"{key}={count}" for key, count in counts.items() if count is not None))
    data = parse_data(data or chosen.default_data)
    wanted = StudyRequest(name, data, parse_losses(losses), full, all_settings, storage)
    folder = out_folder or wanted.default_folder
    request = extend(folder, wanted)
    planned = chosen.plan(request, folder)
    refuse_mistakes(folder, [one.run for one in planned.runs], planned.rehearsed, request.run_settings)
    if plan:
        return show_plan(planned.runs, folder, as_json, planned.note, planned.to_come)
    runner = chosen_runner(folder, workers, cluster)
    with alone_with_plan("study", folder, planned.rehearsed):
        request = extend(folder, wanted)
        planned = chosen.plan(request, folder)
        write_down(folder, request)
        with PlanProgress(err, folder / layout.LOG, planned.total, planned.done) as progress:
            failures = chosen.train(request, folder, planned, runner, progress)
        in_the_end = chosen.plan(request, folder)
        found = chosen.conclude(request, folder, in_the_end)
        if found is not None:
            found = with_what_to_know(found, [one.run for one in in_the_end.runs])
            write_study_report(folder, as_report(request, folder, chosen, found))
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "paragraph": found.paragraph if found else "",
                "notes": list(found.notes) if found else [],
                "results": list(found.rows) if found else [],
                "failed": failed_values(failures),
            }
        )
    elif found is not None:
        out.print(found.paragraph)
        for note in found.notes:
            warn(note)
        out.print(f"Page: {folder / layout.STUDY_PAGE}    Results: {folder / layout.RESULTS}", soft_wrap=True)
    if failures:
        then = "they count as trials" if chosen.uses_storage else "the same command tries them again"
        show_failures(failures, planned.total, then)
        raise typer.Exit(1)
    return None


def with_what_to_know(found: "Conclusion", runs: "Sequence[PlannedRun]") -> "Conclusion":
    """Add what a reader must know of the runs before comparing them, whatever the study.

    That the test classes selected also stands on each picture, which may be shown without its page (D28).
    """
    from ccp_dml.plans.plan import incomplete_data
    from ccp_dml.plans.rehearsal import runs_of_loss_alone
    from ccp_dml.records.run_folder import RunFolder, is_finished
    from ccp_dml.reports import words

    selected_on_test = any(run.config.protocol.select_on == "test" for run in runs)
    finished = [RunFolder.read(run.folder) for run in runs if is_finished(run.folder)]
    notes = [
        *found.notes,
        *incomplete_data(runs),
        *runs_of_loss_alone(runs),
        *([TRAINED_ON_TEST] if any(map(words.tests_on_trained, finished)) else []),
        *([SELECTED_ON_TEST] if selected_on_test else []),
    ]
    small_print = words.SELECTED_ON_TEST.removeprefix("* ") if selected_on_test else ""
    return replace(found, notes=notes, figures=[replace(one, note=small_print) for one in found.figures])


def study_named(name: str) -> "Study":
    from ccp_dml.errors import did_you_mean
    from ccp_dml.studies import STUDIES

    if name not in STUDIES:
        known = did_you_mean(name, list(STUDIES)) or f"; there are {', '.join(STUDIES)}"
        raise UserError(f"There is no study {name!r}{known}.")
    return STUDIES[name]


def as_report(request: "StudyRequest", folder: Path, chosen: "Study", found: "Conclusion") -> "StudyReport":
    from ccp_dml.config.recipes import recipe_label
    from ccp_dml.reports.study import StudyReport

    title = f"{request.study} on {recipe_label(request.data)}" + (", the paper's settings" if request.is_full else "")
    return StudyReport(
        title=title[0].upper() + title[1:],
        question=chosen.question,
        paragraph=found.paragraph,
        notes=found.notes,
        figures=found.figures,
        rows=found.rows,
        command=command(request, folder),
    )


def command(request: "StudyRequest", folder: Path) -> str:
    """Write the command that does the study again."""
    words = ["ccp", "study", request.study, "--data", request.data, "--loss", ",".join(request.losses)]
    words += ["--full"] if request.is_full else []
    words += ["--storage", without_password(request.storage)] if request.storage else []
    words += [part for setting in request.settings for part in ("--set", setting)]
    return shlex.join([*words, "--out", str(folder)])
