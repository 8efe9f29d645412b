"""A study: a plan of runs, a way to train them, and what their results show; and what most studies share.

To add one, write a file beside this one with a `Study`, name it in `STUDIES`, and write its two recipes,
`study-NAME.toml` (finishes in minutes on the embedded data) and `study-NAME-full.toml` (the paper's settings).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from ccp_dml.config.layers import parse_settings, resolve
from ccp_dml.config.recipes import STUDY, loss_of, read_recipe
from ccp_dml.config.schema import ConfigSection
from ccp_dml.errors import UserError
from ccp_dml.evaluation import SCORES
from ccp_dml.plans.plan import PlannedRun, plan_run
from ccp_dml.plans.runner import Failure, PlanWatcher, Runner, execute
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.figures.figure import Figure
from ccp_dml.studies.request import StudyRequest


class Repeats(ConfigSection):
    """The option that most studies have, some of them no other."""

    repeats: int = Field(1, ge=1)


@dataclass(frozen=True)
class StudyRun:
    """A planned run and its place in the study, for example {"loss": "c2", "proxies": 8, "pool": 12, "repeat": 0}."""

    coordinates: dict[str, Any]
    run: PlannedRun


@dataclass(frozen=True)
class StudyPlan:
    """The runs of a study that are known so far."""

    runs: Sequence[StudyRun]
    rehearsed: Sequence[PlannedRun]  # runs to check before the first step, such as all that are left
    done: int
    total: int  # runs in the end, where later ones depend on earlier ones
    note: str = ""  # what `--plan` should say about runs that are not known yet
    to_come: Sequence[PlannedRun] = ()  # in place of those, runs that cost as much


@dataclass(frozen=True)
class FinishedRun:
    """What a run of the study recorded."""

    coordinates: dict[str, Any]
    name: str
    folder: RunFolder

    def score(self, half: str = "test", metric: str = "map_at_r") -> float:
        """Look up a score in percent."""
        value = self.folder.score(half, metric)
        assert value is not None, "finished runs have scores"
        return 100 * value

    def place_in(self, folder: Path) -> str:
        """Write the run's folder as results.csv does, as seen from that of the study."""
        return self.folder.path.relative_to(folder).as_posix()


@dataclass(frozen=True)
class Conclusion:
    """What a study shows: a line of results.csv per run, figures, and a paragraph made of the numbers."""

    rows: Sequence[dict[str, Any]]
    figures: Sequence[Figure]
    paragraph: str
    notes: Sequence[str] = ()


Point = tuple[dict[str, Any], tuple[str, ...]]  # coordinates, and the settings that they stand for
Plan = Callable[[StudyRequest, Path], StudyPlan]
Train = Callable[[StudyRequest, Path, StudyPlan, Runner, PlanWatcher], list[Failure]]
Conclude = Callable[[StudyRequest, Path, Sequence[FinishedRun]], Conclusion | None]


def train_all(
    request: StudyRequest,  # noqa: ARG001
    folder: Path,  # noqa: ARG001
    plan: StudyPlan,
    runner: Runner,
    watcher: PlanWatcher,
) -> list[Failure]:
    """Train every run of the plan that is not done yet, as most studies do."""
    return execute([one.run for one in plan.runs], runner, watcher)


@dataclass(frozen=True)
class Study:
    """One question about the method, answered by one command."""

    question: str
    plan: Plan
    conclude_from: Conclude  # from finished runs; None: there is nothing to conclude from yet
    train: Train = train_all
    default_data: str = "glyphs"
    uses_storage: bool = False  # whether `--storage` means something to it

    def conclude(self, request: StudyRequest, folder: Path, plan: StudyPlan) -> Conclusion | None:
        """Say what the finished runs of `plan` show, and how many are missing; None before there is anything to say."""
        runs = finished_runs(plan)
        if not runs and not self.uses_storage:  # other machines may have trained what is stored
            return None
        found = self.conclude_from(request, folder, runs)
        return None if found is None else replace(found, notes=[*unfinished_note(plan, runs), *found.notes])


def finished_runs(plan: StudyPlan) -> list[FinishedRun]:
    return [
        FinishedRun(one.coordinates, one.run.name, RunFolder.read(one.run.folder))
        for one in plan.runs
        if one.run.is_done
    ]


def result_row(one: FinishedRun, folder: Path) -> dict[str, Any]:
    """Make a line of results.csv: the run's place in the study, and its scores as fractions."""
    result = one.folder.result or {}
    scores = {f"{half}_{key}": result[half][key] for half in ("validation", "test") for key in SCORES}
    facts = {key: result[key] for key in ("selected_on", "best_step", "steps", "problems", "seconds", "seed")}
    return {**one.coordinates, **scores, **facts, "folder": one.place_in(folder)}


def unfinished_note(plan: StudyPlan, finished: Sequence[FinishedRun]) -> list[str]:
    """Say how many runs are missing, if any."""
    missing = len(plan.runs) - len(finished)
    return [f"{missing} of {len(plan.runs)} runs are not finished; the same command goes on."] if missing else []


def plan_study_run(
    request: StudyRequest,
    folder: Path,
    method: str,
    coordinates: dict[str, Any],
    settings: tuple[str, ...],
    repeat: int,
) -> StudyRun:
    """Plan the run at `coordinates`, which name its folder: `c2-ccp/proxies8-pool12/repeat0`.

    Repeat r has the seed `run.seed + r`, whatever the coordinates: runs are compared pair by pair.
    """
    recipes = request.recipes(method)
    refuse_varied(request, settings)
    seed = resolve(recipes, request.run_settings).config.run.seed + repeat
    place = "-".join(f"{name}{value}" for name, value in coordinates.items())
    name = "/".join(part for part in (method, place, f"repeat{repeat}") if part)
    run = plan_run(name, folder / name, recipes, (*request.run_settings, *settings, f"run.seed={seed}"))
    return StudyRun({"loss": loss_of(method), "method": method, **coordinates, "repeat": repeat}, run)


def refuse_varied(request: StudyRequest, settings: Sequence[str]) -> None:
    """Raise if the user sets what the study sets itself, run by run, and would override."""
    for key in sorted(parse_settings(request.run_settings).keys() & parse_settings(settings).keys()):
        varied = [f"{STUDY}.{name}" for name in read_recipe(request.recipe).tables[STUDY] if name != "repeats"]
        raise UserError(
            f"--set {key} would have no effect: the study {request.study} sets it in every run; set "
            f"{' or '.join(varied)} instead."
        )


def plan_all(
    request: StudyRequest, folder: Path, repeats: int, endings: Iterable[str], points: Iterable[Point] = (({}, ()),)
) -> StudyPlan:
    """Plan each loss at each point in the methods that `endings` make of it, one whole repeat after the other."""
    runs = [
        plan_study_run(request, folder, loss + ending, coordinates, settings, repeat)
        for repeat in range(repeats)
        for loss in request.losses
        for coordinates, settings in points
        for ending in endings
    ]
    left = [one.run for one in runs if not one.run.is_done]
    return StudyPlan(runs, left, len(runs) - len(left), len(runs))
