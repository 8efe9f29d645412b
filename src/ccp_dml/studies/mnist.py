"""What does a projection do? A two-dimensional embedding with its proxies, after each problem."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from ccp_dml.config.recipes import ALONE, CCP, PROXY
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.functional.geometry import mean_inter_class_distance
from ccp_dml.functional.kcenter import covering_radius
from ccp_dml.records.layout import map_file
from ccp_dml.records.planar_map import planar_problems
from ccp_dml.records.problem_map import ProblemMap, evenly, followers, read_problems
from ccp_dml.reports.figures.figure import Figure, Line, Lines
from ccp_dml.reports.figures.map_panels import problem_panels
from ccp_dml.runs.illustrations.problem_recorder import FEWEST_IMAGES
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.spread import at, in_paragraphs, variants_in_words
from ccp_dml.studies.study import (
    Conclusion,
    FinishedRun,
    Repeats,
    Study,
    StudyPlan,
    plan_all,
)

VARIANTS = {ALONE: "samples alone", PROXY: "proxies chosen once", CCP: "CCP"}
MOST_MAPS, MOST_TICKS = 6, 12
FEWEST_POINTS = 2 * FEWEST_IMAGES
"""On a map, so that there are two classes and a distance between them."""

CURVES = {
    "validation_map_at_r": "MAP@R on validation images",
    "covering_radius": "covering radius",
    "inter_class_distance": "distance between classes",
}
MAP_CAPTION = (
    "Training images of up to twelve classes under the best weights of the problem. Squares: converged proxies; "
    "circles: those chosen for the next problem. On the page, pointing at a mark tells its class."
)
CURVE_CAPTION = (
    "Covering radius: the largest distance from a training image on the map to the nearest converged proxy of its "
    "class, mean of classes. Distance between classes: mean over pairs of such images. Horizontal lines: trainings "
    "that are one problem. All are means over repeats."
)


@dataclass(frozen=True)
class SolvedProblem:
    """A line of results.csv: one problem of a run, measured on its map. Scores are fractions."""

    problem: int
    steps: int
    validation_map_at_r: float
    covering_radius: float | None  # None: no proxies
    pool_radius: float | None  # of the proxies when they were chosen, over the pool they were chosen from
    inter_class_distance: float


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    """Plan sample-based, proxy-based and alternating training of each loss."""
    planned = plan_all(request, folder, request.options(Repeats).repeats, VARIANTS)
    refuse_unready(planned.runs[0].run.config)
    return planned


def refuse_unready(config: Config) -> None:
    if config.data.name == "mnist" and config.data.root is None:
        raise UserError(
            "data.root is not set: get MNIST with `ccp data prepare mnist --root DIR` and add --set data.root=DIR, "
            "or add --data glyphs, which works at once."
        )
    if config.run.map_points < FEWEST_POINTS:
        raise UserError(
            f"run.map_points = {config.run.map_points} leaves no maps of several classes to draw; leave it out, or "
            "give it some hundred."
        )


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion:
    solved = {run.name: solved_problems(run) for run in runs}
    by_loss = {loss: own for loss in request.losses if (own := at(runs, loss=loss))}
    found = (map_figure(loss, own) for loss, own in by_loss.items())
    figures = [figure for figure in found if figure is not None]
    figures += [end_figure(loss, own) for loss, own in by_loss.items()]
    figures += [curve_figure(loss, own, solved) for loss, own in by_loss.items()]
    return Conclusion(
        rows=[
            {**run.coordinates, **vars(one), "test_map_at_r": run.score() / 100, "folder": run.place_in(folder)}
            for run in runs
            for one in solved[run.name]
        ],
        figures=figures,
        paragraph=in_paragraphs(sentences(loss, own, solved) for loss, own in by_loss.items()),
    )


def solved_problems(run: FinishedRun) -> list[SolvedProblem]:
    logged = {row["problem"]: row for row in run.folder.problem_rows()}
    return [
        SolvedProblem(
            one.problem,
            logged[one.problem]["steps"],
            logged[one.problem]["map_at_r"],
            map_radius(one),
            logged[one.problem]["covering_radius"],
            mean_inter_class_distance(one.train.embeddings, one.train.labels),
        )
        for one in maps_of(run)
    ]


def maps_of(run: FinishedRun) -> list[ProblemMap]:
    """Read the maps of a run; raise if that of the selected network is gone, without which there is nothing to show."""
    path, problems = run.folder.path, read_problems(run.folder.path)
    chosen = best_problem(run)
    if all(one.problem != chosen for one in problems):
        raise UserError(
            f"{map_file(path, chosen)}, which this study draws, is gone; restore it, or delete {path} and repeat the "
            "study's command, which trains that run again."
        )
    return problems


def best_problem(run: FinishedRun) -> int:
    """Look up the problem that the selected network is of."""
    return int((run.folder.best_evaluation() or {})["problem"])


def map_radius(problem: ProblemMap) -> float | None:
    """Average over the map's classes the largest distance from a training image to the nearest converged proxy."""
    if problem.converged is None:
        return None
    points = (problem.train.embeddings[problem.train.labels == label] for label in range(len(problem.converged)))
    radii = [
        covering_radius(own.unsqueeze(0), centres.unsqueeze(0))
        for own, centres in zip(points, problem.converged, strict=True)
    ]
    return float(torch.cat(radii).mean())


def map_figure(loss: str, runs: Sequence[FinishedRun]) -> Figure | None:
    """Draw CCP's problems of the first repeat side by side; None if it has not finished."""
    ccp = at(runs, method=loss + CCP)
    if not ccp:
        return None
    problems = maps_of(ccp[0])
    following = followers(problems)
    kept = evenly(problems, MOST_MAPS)
    scores = {row["problem"]: row["map_at_r"] for row in ccp[0].folder.problem_rows()}
    titles = [f"Problem {one.problem}: MAP@R {100 * scores[one.problem]:.1f} %" for one in kept]
    panels = problem_panels(*planar_problems(kept, [following.get(one.problem) for one in kept]), titles)
    return Figure(f"problems-{loss}", f"{loss + CCP}, problem by problem", MAP_CAPTION, panels)


def end_figure(loss: str, runs: Sequence[FinishedRun]) -> Figure:
    """Draw the best problem of each kind of training, of the first repeat that has finished."""
    best, titles = [], []
    for ending, label in VARIANTS.items():
        for run in at(runs, method=loss + ending)[:1]:
            chosen = best_problem(run)
            best.append(next(one for one in maps_of(run) if one.problem == chosen))
            titles.append(f"{label}: MAP@R {run.score():.1f} %")
    panels = problem_panels(*planar_problems(best, [None] * len(best)), titles)
    caption = "Training images under the selected weights; squares: proxies. MAP@R is that of the test half."
    return Figure(f"trainings-{loss}", f"{loss}: with samples, with proxies, with CCP", caption, panels)


def curve_figure(loss: str, runs: Sequence[FinishedRun], solved: dict[str, list[SolvedProblem]]) -> Figure:
    panels = []
    for key, label in CURVES.items():
        lines = []
        for style, (ending, name) in enumerate(VARIANTS.items()):
            values: dict[int, list[float]] = {}
            for run in at(runs, method=loss + ending):
                for one in solved[run.name]:
                    if getattr(one, key) is not None:
                        values.setdefault(one.problem, []).append(getattr(one, key))
            x = sorted(values)  # repeats have maps of different problems
            y = [mean(values[problem]) for problem in x]
            if ending != CCP:  # one problem, after one without proxies where the recipe asks for such a start
                x, y = [1, most_problems(solved)], y[-1:] * 2
            if y:
                lines.append(Line(name, x, y, style))
        if not lines:
            continue  # no training has come to its proxies
        ticks = range(1, most_problems(solved) + 1, math.ceil(most_problems(solved) / MOST_TICKS))
        panels.append(Lines(label, "problem", label, lines, x_ticks=ticks, has_markers=True))
    return Figure(f"curves-{loss}", f"{loss}: what changes from problem to problem", CURVE_CAPTION, panels)


def most_problems(solved: dict[str, list[SolvedProblem]]) -> int:
    return max(one.problem for problems in solved.values() for one in problems)


def sentences(loss: str, runs: Sequence[FinishedRun], solved: dict[str, list[SolvedProblem]]) -> list[str]:
    """Say what changed over CCP's problems, and how the three trainings compare."""
    text = []
    ccp = at(runs, method=loss + CCP)
    covered = [[one for one in solved[run.name] if one.covering_radius is not None] for run in ccp]
    covered = [problems for problems in covered if len(problems) > 1]
    if covered:
        first, last = [problems[0] for problems in covered], [problems[-1] for problems in covered]
        text.append(
            f"{loss + CCP}, from the first problem with proxies to the last "
            f"({', '.join(str(len(problems)) for problems in covered)} problems): "
            f"validation MAP@R {change(first, last, 'validation_map_at_r')}, covering radius "
            f"{change(first, last, 'covering_radius')}, distance between classes "
            f"{change(first, last, 'inter_class_distance')}."
        )
    rivals = {PROXY: "proxies chosen once", ALONE: "samples alone"}
    return text + variants_in_words(loss, runs, VARIANTS, "the test half", rivals)


def change(first: Sequence[SolvedProblem], last: Sequence[SolvedProblem], key: str) -> str:
    """Write a change of means over runs, as in "0.540 -> 0.270"."""
    return " -> ".join(f"{mean(getattr(one, key) for one in problems):.3f}" for problems in (first, last))


STUDY = Study(
    "What does a projection do? Two dimensions with proxies after each problem; samples, proxies and CCP compared",
    plan,
    conclude,
    default_data="mnist",
)
