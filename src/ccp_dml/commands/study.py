"""`ccp study`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccp_dml.commands.console import Json, Settings, out, print_json
from ccp_dml.commands.plans import PlanEntry, ShowPlan, Workers, failed_values, show_failures, show_plan, train_plan
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from ccp_dml.experiments.studies.request import StudyRequest


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which study; see `ccp list studies`.")],
    data: Annotated[
        str, typer.Option("--data", metavar="NAME", help="A data set recipe; see `ccp list datasets`.")
    ] = "glyphs",
    losses: Annotated[str, typer.Option("--loss", metavar="A,B,...", help="c1, c2, ms or triplet.")] = "c2",
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, metavar="N", help="Train everything N times, to see the noise.")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The study's folder; default runs/study-NAME-DATA.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's settings instead of those that finish in minutes.")
    ] = False,
    plan: ShowPlan = False,
    workers: Workers = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Answer one question about the method with figures, a table and a paragraph. The same command continues it.

    Example: `ccp study pool --data glyphs --set "study.pool_per_class=[1, 4, 12]"`
    """
    from ccp_dml.experiments.plan import refuse_changed, standing
    from ccp_dml.experiments.recipe_names import parse_data, parse_losses, recipe_label
    from ccp_dml.experiments.studies import STUDIES
    from ccp_dml.experiments.studies.request import StudyRequest, refuse_other_study, write_down
    from ccp_dml.reports.study_report import StudyReport, write_study_report

    refuse_unknown(name)
    of_study = [f"study.repeats={repeats}"] if repeats is not None else []
    request = StudyRequest(name, parse_data(data), parse_losses(losses), full, (*(settings or ()), *of_study))
    folder = out_folder or request.default_folder
    refuse_other_study(folder, request)
    chosen = STUDIES[name]
    planned = chosen.plan(request, folder)
    refuse_changed([one.run for one in planned.runs])
    if plan:
        entries = [PlanEntry(one.run, one.coordinates) for one in planned.runs]
        return show_plan(entries, folder, as_json, planned.note)
    failures = train_plan(
        "study",
        folder,
        [one.run for one in planned.runs],
        write_down=lambda: write_down(folder, request),
        train=lambda _, count, watcher: chosen.train(request, folder, planned, count, watcher),
        workers=workers,
    )
    planned = chosen.plan(request, folder)
    if any(standing(one.run.folder).state == "done" for one in planned.runs):
        found = chosen.conclude(request, folder, planned)
        title = f"{name} on {recipe_label(data)}" + (", the paper's settings" if full else "")
        page = write_study_report(
            folder,
            StudyReport(
                title,
                chosen.question,
                found.paragraph,
                found.notes,
                found.figures,
                found.rows,
                command(request, folder),
            ),
        )
        if as_json:
            print_json(
                {
                    "folder": str(folder),
                    "paragraph": found.paragraph,
                    "notes": list(found.notes),
                    "results": list(found.rows),
                    "failed": failed_values(failures),
                }
            )
        else:
            out.print(found.paragraph, highlight=False, markup=False)
            out.print(f"Page: {page}    Results: {folder / 'results.csv'}", highlight=False, soft_wrap=True)
    if failures:
        show_failures(failures, total=len(planned.runs))
        raise typer.Exit(1)
    return None


def refuse_unknown(name: str) -> None:
    from ccp_dml.experiments.studies import STUDIES
    from ccp_dml.layers import nearest

    if name not in STUDIES:
        known = nearest(name, list(STUDIES)) or f"; there are {', '.join(STUDIES)}"
        raise UserError(f"There is no study {name!r}{known}.")


def command(request: "StudyRequest", folder: Path) -> str:
    """What a person types to do the study again."""
    words = ["ccp", "study", request.study, "--data", request.data, "--loss", ",".join(request.losses)]
    words += ["--full"] if request.is_full else []
    words += [part for setting in request.settings for part in ("--set", setting)]
    return shlex.join([*words, "--out", str(folder)])
