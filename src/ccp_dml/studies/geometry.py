"""Where do classes lie, before and after training? Those that train, and those never seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import Field

from ccp_dml.config.recipes import ALONE, CCP
from ccp_dml.evaluation import spread
from ccp_dml.foundation.digests import file_digest
from ccp_dml.plans.runner import Failure, PlanWatcher, Runner
from ccp_dml.records import layout
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure, Scatter
from ccp_dml.reports.figures.map_panels import class_points
from ccp_dml.reports.words import decimals, difference_text
from ccp_dml.studies.embedding_geometry import SIDES, Geometry, is_measured, measure, read_geometry, write_geometry
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.spread import at, difference, in_paragraphs
from ccp_dml.studies.study import (
    Conclusion,
    FinishedRun,
    Repeats,
    Study,
    StudyPlan,
    plan_all,
    train_all,
)
from ccp_dml.studies.workbench import Workbench

BEFORE = "before training"
VARIANTS = (ALONE, CCP)
QUANTITIES = {
    "map_at_r": ("MAP@R", "%", 100.0),
    "covering_radius": ("Covering radius", "distance", 1.0),
    "inter_class_distance": ("Distance between classes", "distance", 1.0),
    "relative_radius": ("Radius / distance between classes", "ratio", 1.0),
}
TSNE_CAPTION = (
    "t-SNE of images of up to twelve classes, the same in all panels. Neighbours mean something; scale, angle and the "
    "distances between far groups do not. On the page, pointing at a mark tells its class."
)
BAR_CAPTION = (
    "Covering radius: per class the mean over k = 1..n of the radius that k greedy centres leave, then the mean over "
    "classes; distance between classes: mean over pairs of images. Bars: mean over repeats; lines on them: standard "
    "deviation."
)


class GeometryOptions(Repeats):
    points: int = Field(400, ge=8, description="images per side that t-SNE draws")


@dataclass(frozen=True)
class State:
    """A network at one moment, and what was measured of it."""

    method: str  # BEFORE, or the method that trained it
    repeat: int
    geometry: Geometry


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    return plan_all(request, folder, request.options(GeometryOptions).repeats, VARIANTS)


def train(request: StudyRequest, folder: Path, plan: StudyPlan, runner: Runner, watcher: PlanWatcher) -> list[Failure]:
    """Train, then measure what has not been measured yet: a file per network, which an interruption leaves in place.

    All runs of a repeat start from one network, so it is measured with the first of them.
    """
    failures = train_all(request, folder, plan, runner, watcher)
    points = request.options(GeometryOptions).points
    bench, started = Workbench(), set()
    for one in plan.runs:
        config, method, repeat = one.run.config, one.coordinates["method"], one.coordinates["repeat"]
        if not one.run.is_done:
            continue
        networks = {method: bench.best_network}
        if repeat not in started:
            networks[BEFORE] = bench.first_network
            started.add(repeat)
        result = file_digest(one.run.folder / layout.RESULT)
        for state, network in networks.items():
            file = layout.geometry_file(folder, state, repeat)
            if not is_measured(file, result):
                watcher.note(f"measuring {state}, repeat {repeat}")
                parts = bench.parts(config)
                write_geometry(file, measure(config, network(one.run), parts.learned, parts.test, points), result)
    return failures


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion | None:
    states = measured_states(folder, runs)
    if not states:
        return None
    return Conclusion(
        rows=[row(state, side) for state in states for side in SIDES],
        figures=[*(tsne_figure(states, side) for side in SIDES), bar_figure(states)],
        paragraph=in_paragraphs(sentences(loss, runs, states) for loss in request.losses),
    )


def measured_states(folder: Path, runs: Sequence[FinishedRun]) -> list[State]:
    """List the networks: before training first, then the runs that were measured as they are now, in their order."""
    firsts = {run.coordinates["repeat"]: run for run in reversed(runs)}
    wanted = [(BEFORE, repeat, firsts[repeat]) for repeat in sorted(firsts)]
    wanted += [(run.coordinates["method"], run.coordinates["repeat"], run) for run in runs]
    states = []
    for method, repeat, run in wanted:
        file = layout.geometry_file(folder, method, repeat)
        if is_measured(file, file_digest(run.folder.path / layout.RESULT)):
            states.append(State(method, repeat, read_geometry(file)))
    return states


def row(state: State, side: str) -> dict[str, Any]:
    measured = state.geometry[side].measured
    own = {"method": state.method, "repeat": state.repeat, "side": side}
    return {**own, **vars(measured), "relative_radius": measured.relative_radius}


def tsne_figure(states: Sequence[State], side: str) -> Figure:
    """Draw a panel per network of the first repeat."""
    panels = []
    for place, state in enumerate(one for one in states if one.repeat == states[0].repeat):
        shown, score = state.geometry[side].shown(), 100 * state.geometry[side].measured.map_at_r
        groups = class_points(shown, in_legend=place == 0)
        panels.append(Scatter(f"{state.method}: MAP@R {score:.1f} %", "", "", groups, has_ticks=False))
    return Figure(f"tsne-{side}", f"{side.capitalize()} classes", TSNE_CAPTION, panels)


def bar_figure(states: Sequence[State]) -> Figure:
    methods = list(dict.fromkeys(state.method for state in states))
    panels = []
    for key, (title, unit, factor) in QUANTITIES.items():
        groups = []
        for style, method in enumerate(methods):
            of_sides = [[factor * value for value in values(states, method, side, key)] for side in SIDES]
            found = [spread(own) if own else None for own in of_sides]
            deviations = [None if one is None else one.sd for one in found]
            means = [None if one is None else one.mean for one in found]
            groups.append(BarGroup(method, means, style, deviations if any(deviations) else None))
        panels.append(Bars(title, "classes", unit, SIDES, groups))
    return Figure("numbers-of-geometry", "In numbers", BAR_CAPTION, panels)


def values(states: Sequence[State], method: str, side: str, key: str) -> list[float]:
    """Collect a value of all repeats that have it."""
    found = (getattr(state.geometry[side].measured, key) for state in states if state.method == method)
    return [value for value in found if value is not None]


def sentences(loss: str, runs: Sequence[FinishedRun], states: Sequence[State]) -> list[str]:
    """Say what training changes on unseen and on seen classes, then what CCP adds."""
    methods = [method for method in (BEFORE, loss, loss + CCP) if values(states, method, "unseen", "map_at_r")]
    text = []
    for side in reversed(SIDES):
        told = [
            f"{method} MAP@R {100 * mean(values(states, method, side, 'map_at_r')):.1f} %, covering radius "
            f"{mean(values(states, method, side, 'covering_radius')):.3f}, distance between classes "
            f"{mean(values(states, method, side, 'inter_class_distance')):.3f} (radius / distance "
            f"{decimals(mean(ratios) if (ratios := values(states, method, side, 'relative_radius')) else None, 3)})"
            for method in methods
        ]
        text.append(f"{loss}, {side} classes: " + "; ".join(told) + ".")
    gain = difference(at(runs, method=loss + CCP), at(runs, method=loss))
    if gain is not None:
        text.append(f"What CCP adds to MAP@R on unseen classes: {difference_text(gain)}.")
    return text


STUDY = Study(
    "Where do seen and unseen classes lie before and after training? t-SNE, covering radius, distance between classes",
    plan,
    conclude,
    train,
)
