"""What does CCP cost? Time per step and its parts, memory, and steps to convergence, against the loss alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from pydantic import Field

from ccp_dml.config.recipes import ALONE, CCP
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import file_digest
from ccp_dml.foundation.files import write_json
from ccp_dml.plans.runner import Failure, PlanWatcher, Runner
from ccp_dml.records import layout
from ccp_dml.records.documents import read_json
from ccp_dml.records.layout import timing_file
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure, Line, Lines
from ccp_dml.studies.cost.measurement import STEP_PARTS, Samples, time_in_turns
from ccp_dml.studies.cost.table import CostTable, Quantity, quantity_rows
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.spread import at, curves_figure, in_paragraphs
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

VARIANTS = {ALONE: "without CCP", CCP: "with CCP"}
BETWEEN_STEPS = ("evaluation", "reselection")
MEMORY = ("state", "kept for backward")
RESULTS = "results"
"""Entry of the timings: digests of the results of the runs that were timed, by method."""

TIME_AGAIN = "delete it, and repeat the study's command, which times again"
NOISY = 0.2
"""The range of the middle half of the rounds' ratios from which on the machine was probably busy with other work."""


class CostOptions(Repeats):
    rounds: int = Field(30, ge=3, description="in each, both trainings are timed, in turns")
    steps: int = Field(10, ge=1, description="timed at once")
    evaluations: int = Field(5, ge=1, description="timed evaluations and reselections")


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    return plan_all(request, folder, request.options(CostOptions).repeats, VARIANTS)


def train(request: StudyRequest, folder: Path, plan: StudyPlan, runner: Runner, watcher: PlanWatcher) -> list[Failure]:
    """Train all runs, to see how many steps they take; then time steps, when no worker disturbs them."""
    failures = train_all(request, folder, plan, runner, watcher)
    options, bench = request.options(CostOptions), Workbench()
    for loss in request.losses:
        first = [one for one in plan.runs if one.coordinates["loss"] == loss][: len(VARIANTS)]
        runs = {one.coordinates["method"]: one.run for one in first}
        if not all(run.is_done for run in runs.values()):
            continue
        timed = results_of({method: run.folder for method, run in runs.items()})
        if is_timed(timing_file(folder, loss), timed):
            continue
        watcher.note(f"timing {' and '.join(runs)} in turns, {options.rounds} rounds")
        samples = time_in_turns(runs, bench, options.rounds, options.steps, options.evaluations)
        write_json(timing_file(folder, loss), {"threads": torch.get_num_threads(), RESULTS: timed, "samples": samples})
    return failures


def results_of(runs: Mapping[str, Path]) -> dict[str, str]:
    """Digest the results of runs, by method: a run that was trained again has another one."""
    return {method: file_digest(run / layout.RESULT) for method, run in runs.items()}


def is_timed(file: Path, results: dict[str, str]) -> bool:
    """Tell whether `file` holds timings of the runs with these results; those of other runs are timed anew."""
    return file.exists() and (read_json(file, TIME_AGAIN) or {}).get(RESULTS) == results


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion | None:
    tables = {
        loss: cost_table(loss, folder, at(runs, loss=loss))
        for loss in request.losses
        if is_timed(timing_file(folder, loss), results_of(first_pair(loss, runs)))
        and steps_to_convergence(loss, at(runs, loss=loss))
    }
    if not tables:
        return None
    return Conclusion(
        rows=[row for loss, table in tables.items() for row in quantity_rows(loss, table)],
        figures=[
            parts_figure(tables),
            ratio_figure(tables),
            curves_figure("convergence", list(tables), VARIANTS, runs),
        ],
        paragraph=in_paragraphs(sentences(loss, table) for loss, table in tables.items()),
        notes=[note for loss, table in tables.items() for note in noise(loss, table, timing_file(folder, loss))],
    )


def first_pair(loss: str, runs: Sequence[FinishedRun]) -> dict[str, Path]:
    """Find the folders of the runs that were timed, by method: those of the first repeat."""
    return {run.coordinates["method"]: run.folder.path for run in at(runs, loss=loss, repeat=0)}


def cost_table(loss: str, folder: Path, runs: Sequence[FinishedRun]) -> CostTable:
    """Collect all that was measured of a loss, without CCP and with it."""
    samples = read_samples(timing_file(folder, loss), [loss + ending for ending in VARIANTS])
    table: CostTable = {}
    for ending in VARIANTS:
        own, finished = samples[loss + ending], at(runs, method=loss + ending)
        ms = {name: [1e3 * value for value in values] for name, values in own.items()}
        found = {name: Quantity("ms", ms[name], is_part=name != "step") for name in ("step", *STEP_PARTS) if name in ms}
        found |= {f"one {name}": Quantity("ms", ms[name]) for name in BETWEEN_STEPS if name in ms}
        found |= {
            name: Quantity("ms", [value / gap for value in ms[name]], is_part=True)
            for name, gap in steps_between(finished).items()
            if name in ms
        }
        for name in MEMORY:
            found[name] = Quantity("MB", [value / 1e6 for value in own[name]])
        table[loss + ending] = found
    for name, by_method in steps_to_convergence(loss, runs).items():
        for method, steps in by_method.items():
            table[method][name] = Quantity("steps", steps)
    return table


def read_samples(file: Path, methods: Sequence[str]) -> dict[str, Samples]:
    """Read what was timed of `methods`; raise a UserError with the remedy where the file does not hold it."""
    timings = read_json(file, TIME_AGAIN) or {}
    try:
        found = {
            method: {name: [float(value) for value in values] for name, values in timings["samples"][method].items()}
            for method in methods
        }
        for method in methods:
            for name in ("step", *MEMORY):
                found[method][name][0]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{file} does not hold the timings of {' and '.join(methods)} ({error}); {TIME_AGAIN}."
        ) from None
    return found


def steps_to_convergence(loss: str, runs: Sequence[FinishedRun]) -> dict[str, dict[str, list[float]]]:
    """Count steps by quantity and method, in the repeats in which both trainings have the quantity."""
    pairs = [
        (plain, with_ccp)
        for plain in at(runs, method=loss)
        for with_ccp in at(runs, method=loss + CCP, repeat=plain.coordinates["repeat"])
    ]
    best, reached = [], []
    for pair in pairs:
        best.append([result(run, "best_step") for run in pair])
        score = pair[0].folder.score("validation", "map_at_r")
        steps = [None if score is None else steps_to_score(run.folder, score) for run in pair]
        if None not in steps:
            reached.append([float(step) for step in steps if step is not None])
    found = {"steps to the best evaluation": best, "steps to the best score without CCP": reached}
    return {
        name: {loss: [one[0] for one in both], loss + CCP: [one[1] for one in both]}
        for name, both in found.items()
        if both
    }


def steps_between(runs: Sequence[FinishedRun]) -> dict[str, float]:
    """Count the steps from one evaluation to the next, and from one reselection to the next, where there was any."""
    starts = [start for run in runs for start in run.folder.problem_starts()]
    reselections = sum(start["covering_radius"] is not None for start in starts)  # the start may be without proxies
    found = {"evaluation": runs[0].folder.settings()["train.evaluate_every"]}
    if reselections:
        found["reselection"] = sum(result(run, "steps") for run in runs) / reselections
    return found


def result(run: FinishedRun, key: str) -> float:
    return float((run.folder.result or {})[key])


def steps_to_score(run: RunFolder, score: float) -> int | None:
    """Find the step of the first evaluation that reaches `score`; None if none does."""
    return next((row["step"] for row in run.metrics if row["map_at_r"] >= score), None)


def parts_figure(tables: dict[str, CostTable]) -> Figure:
    panels = []
    for loss, table in tables.items():
        parts = [name for name, one in table[loss + CCP].items() if one.is_part]
        groups = []
        for style, (ending, label) in enumerate(VARIANTS.items()):
            own = table[loss + ending]
            groups.append(BarGroup(label, [own[name].median if name in own else None for name in parts], style))
        panels.append(Bars(loss, "part", "ms per step", parts, groups))
    caption = (
        "Medians over rounds. Evaluations and reselections are shared out over the steps between them, as many as the "
        "trainings took."
    )
    return Figure("parts", "Where the time goes", caption, panels)


def ratio_figure(tables: dict[str, CostTable]) -> Figure:
    panels = []
    for loss, table in tables.items():
        ratios = table[loss + CCP]["step"].ratios_to(table[loss]["step"])
        lines = [
            Line("with CCP / without", list(range(1, len(ratios) + 1)), ratios, 1),
            Line("no difference", [1, len(ratios)], [1.0, 1.0], 6),
        ]
        panels.append(Lines(loss, "round", "ratio of times per step", lines, has_markers=True))
    caption = "Each round times both trainings right after each other, in one process; the order alternates."
    return Figure("rounds", "Round by round", caption, panels)


def sentences(loss: str, table: CostTable) -> list[str]:
    """Say what CCP costs: time and its parts, memory, convergence."""
    plain, ccp = table[loss], table[loss + CCP]
    text = [
        f"{loss}: a step takes {plain['step'].median:.1f} ms without CCP and {ccp['step'].median:.1f} ms with it: "
        f"{ccp['step'].ratio_in_words(plain['step'])}, over {len(ccp['step'].values)} rounds."
    ]
    parts = {name: one.median for name, one in ccp.items() if one.is_part}
    shares = sorted(parts, key=lambda name: -parts[name])
    told = [f"{name} {100 * parts[name] / sum(parts.values()):.1f} %" for name in shares]
    text.append(f"Of all the time with CCP: {', '.join(told)}.")
    dearer = sum(parts.values()) / sum(one.median for one in plain.values() if one.is_part)
    text.append(f"Evaluations and reselections included, a step with CCP takes {dearer:.2f} times as long.")
    memory = [
        f"{name} {ccp[name].median:.1f} MB instead of {plain[name].median:.1f} "
        f"({ccp[name].median / plain[name].median:.2f} times)"
        for name in MEMORY
    ]
    text.append(f"Memory: {', '.join(memory)}.")
    best, reached = "steps to the best evaluation", "steps to the best score without CCP"
    text.append(
        f"The best evaluation is at step {ccp[best].median:,.0f} with CCP and {plain[best].median:,.0f} without; "
        + (
            f"the best score without CCP is reached with it at step {ccp[reached].median:,.0f} (median of "
            f"{len(ccp[reached].values)} of {len(ccp[best].values)} runs)."
            if reached in ccp
            else "with CCP, the best score without it is not reached."
        )
    )
    return text


def noise(loss: str, table: CostTable, file: Path) -> list[str]:
    """Say that the timings in `file` are not to be relied on, where their ratios vary too much."""
    low, _, high = Quantity("", table[loss + CCP]["step"].ratios_to(table[loss]["step"])).quartiles
    if high - low < NOISY:
        return []
    return [
        f"{loss}: the ratio of times varied much from round to round, so the machine was probably busy; delete {file} "
        "and repeat the command when it is idle, which times again without training again."
    ]


STUDY = Study(
    "What does CCP cost? Time per step and its parts, memory and steps to convergence, with and without",
    plan,
    conclude,
    train,
)
