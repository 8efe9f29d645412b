"""Does alternating help? A loss alone, with proxies chosen once, and with CCP, for equally many steps."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ccp_dml.config.recipes import ALONE, CCP, PROXY
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure, Histogram, Panel
from ccp_dml.reports.words import counted, validated_on
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.spread import at, curves_figure, in_paragraphs, mean_score, sd_score, variants_in_words
from ccp_dml.studies.study import (
    Conclusion,
    FinishedRun,
    Repeats,
    Study,
    StudyPlan,
    plan_all,
    result_row,
)

VARIANTS = {ALONE: "loss alone", PROXY: "one problem", CCP: "CCP"}
ON_UNSEEN = "MAP@R on unseen classes (%)"


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    return plan_all(request, folder, request.options(Repeats).repeats, VARIANTS)


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion:
    figures = [
        scores_figure(request, runs),
        curves_figure("curves", request.losses, VARIANTS, runs),
        problems_figure(request, runs),
    ]
    return Conclusion(
        rows=[result_row(run, folder) for run in runs],
        figures=[figure for figure in figures if figure is not None],
        paragraph=in_paragraphs(sentences(loss, runs) for loss in request.losses),
        notes=unequal_steps(runs),
    )


def scores_figure(request: StudyRequest, runs: Sequence[FinishedRun]) -> Figure:
    groups = []
    for style, (ending, label) in enumerate(VARIANTS.items()):
        of_losses = [at(runs, method=loss + ending) for loss in request.losses]
        groups.append(BarGroup(label, [mean_score(of) for of in of_losses], style, [sd_score(of) for of in of_losses]))
    panel = Bars(f"Selected on {validated_on(runs[0].folder)}", "loss", ON_UNSEEN, request.losses, groups)
    return Figure("scores", "Scores", "Bars: mean over repeats; lines on them: standard deviation.", [panel])


def problems_figure(request: StudyRequest, runs: Sequence[FinishedRun]) -> Figure | None:
    """Draw how many steps problems take; None if no problem of CCP has ended."""
    panels: list[Panel] = []
    for style, loss in enumerate(request.losses):
        of_loss = at(runs, method=loss + CCP)
        lengths = [steps for run in of_loss for steps in steps_per_problem(run)]
        if lengths:
            width = of_loss[0].folder.settings()["train.evaluate_every"]
            title = f"{loss + CCP}: {counted(len(lengths), 'problem')} of {counted(len(of_loss), 'run')}"
            panels.append(Histogram(title, "steps in a problem", "problems", lengths, width, style))
    caption = (
        "Problems that came to their own end: not the one that the run's end cut short, nor a start without proxies."
    )
    return Figure("problems", "Steps per problem", caption, panels) if panels else None


def steps_per_problem(run: FinishedRun) -> list[int]:
    """Count the steps of each problem with proxies that ended by itself."""
    return [row["steps"] for row in run.folder.problem_rows()[:-1] if row["covering_radius"] is not None]


def sentences(loss: str, runs: Sequence[FinishedRun]) -> list[str]:
    """Say what the runs of one loss show."""
    rivals = {PROXY: "proxies chosen once", ALONE: "the loss alone"}
    text = variants_in_words(loss, runs, VARIANTS, "unseen classes", rivals)
    lengths = [steps for run in at(runs, method=loss + CCP) for steps in steps_per_problem(run)]
    if lengths:
        text.append(
            f"A problem took {min(lengths):,} to {max(lengths):,} steps (median {median(lengths):,.0f}, "
            f"{len(lengths)} problems)."
        )
    return text


def unequal_steps(runs: Sequence[FinishedRun]) -> list[str]:
    steps = sorted({run.folder.count("steps") or 0 for run in runs})
    if len(steps) < 2:
        return []
    return [f"The runs took {steps[0]:,} to {steps[-1]:,} steps, not equally many: set train.patience higher."]


STUDY = Study(
    "Does alternating help? A loss alone, with one proxy problem, and with CCP, for equal steps", plan, conclude
)
