"""Which lambda, and how many proxies? A Bayesian search that selects on validation classes only."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ccp_dml.config.layers import SETTING, resolve, values_of
from ccp_dml.config.recipes import CCP, recipe_label
from ccp_dml.config.schema import Config, ConfigSection
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import digest, file_digest
from ccp_dml.plans.plan import PlannedRun, is_done, plan_run
from ccp_dml.plans.runner import Failure, PlanWatcher, Runner
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHERE_FILES_ARE
from ccp_dml.runs.datasets import build_data
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.search.outcome import conclude_search
from ccp_dml.studies.search.storage import TrialStore, search_name
from ccp_dml.studies.search.trials import (
    GIVEN_UP,
    OVER,
    PROXIES,
    WEIGHT,
    Point,
    SearchSpace,
    TrialRuns,
    is_own,
    trial_name,
    trial_point,
)
from ccp_dml.studies.study import Conclusion, FinishedRun, Study, StudyPlan, StudyRun


class SearchOptions(ConfigSection):
    trials: int = Field(16, ge=1, description="in the end, those of all machines together")
    startup_trials: int = Field(6, ge=1, description="at random, before the sampler has something to learn from")
    weight: tuple[PositiveFloat, PositiveFloat] = Field((1e-12, 1e2), description="lambda, on a logarithmic scale")
    proxies_per_class: tuple[PositiveInt, PositiveInt] = Field((1, 16), description="P")

    @field_validator("weight", "proxies_per_class")
    @classmethod
    def _is_a_range(cls, limits: tuple[float, float], checked: ValidationInfo) -> tuple[float, float]:
        if limits[0] >= limits[1]:
            raise PydanticCustomError("range", "{name} must be [lowest, highest]", {"name": str(checked.field_name)})
        return limits


def plan(request: StudyRequest, folder: Path) -> StudyPlan:
    """Plan the trials that are complete or under way; those to come depend on them."""
    options, store = request.options(SearchOptions), trial_store(request, folder)
    everybodys = store.open().get_trials(deepcopy=False) if store.exists() else []
    known = [trial for trial in everybodys if is_own(trial, store.owner)]
    runs = [
        StudyRun({"trial": trial.number, **point}, trial_run(request, folder, trial.number, point))
        for trial in known
        if has_run(trial, folder) and (point := trial_point(trial)) is not None
    ]
    over = sum(trial.state in OVER for trial in everybodys)
    left = max(0, options.trials - over)
    example = trial_run(request, folder, 0, search_space(request).first)
    begun, running = len(everybodys), sum(trial.state == TrialState.RUNNING for trial in everybodys)
    return StudyPlan(
        runs,
        rehearsed=[example] if left else [],
        to_come=[
            replace(example, name=trial_name(one), folder=folder / trial_name(one))
            for one in range(begun, begun + left - running)
        ],
        done=min(over, options.trials),
        total=options.trials,
        note=f"{left} of {options.trials} trials are left, each depending on the results of those before it; "
        f"{sum(trial.state in GIVEN_UP for trial in everybodys)} were pruned or failed.",
    )


def has_run(trial: FrozenTrial, folder: Path) -> bool:
    """Tell whether a trial has a run to plan; a complete one has none if its folder is gone, as its score is kept."""
    if trial.state == TrialState.COMPLETE:
        return is_done(folder / trial_name(trial.number))
    return trial.state not in GIVEN_UP


def train(
    request: StudyRequest,
    folder: Path,
    plan: StudyPlan,
    runner: Runner,
    watcher: PlanWatcher,
) -> list[Failure]:
    if plan.done == plan.total and all(one.run.is_done for one in plan.runs):
        return []
    options, store = request.options(SearchOptions), trial_store(request, folder)
    trials = TrialRuns(
        store.open(),
        search_space(request),
        options.trials,
        lambda number, point: trial_run(request, folder, number, point),
        store.owner,
        watcher,
    )
    return runner.train(trials.runs(), options.trials, trials)


def conclude(request: StudyRequest, folder: Path, runs: Sequence[FinishedRun]) -> Conclusion | None:  # noqa: ARG001
    store, space, method = trial_store(request, folder), search_space(request), method_of(request)
    return conclude_search(store, space, request.data, method, trained_with(request))


def method_of(request: StudyRequest) -> str:
    if len(request.losses) > 1:
        raise UserError(f"--loss {','.join(request.losses)}: search one loss at a time.")
    return request.losses[0] + CCP


def base_config(request: StudyRequest) -> Config:
    """Resolve what all trials share, with the recipe's own lambda and P."""
    config = resolve(request.recipes(method_of(request)), request.run_settings).config
    if config.protocol.select_on == "test":
        raise UserError("protocol.select_on = 'test': a search chooses on validation classes only; leave it out.")
    return config


def trained_with(request: StudyRequest) -> dict[str, Any]:
    """List what the study's recipe and the user set for all trials, by dotted key, but for what changes no result."""
    resolved = resolve(request.recipes(method_of(request)), request.run_settings)
    values = values_of(resolved.config)
    shown = values.keys() - HOW_IT_RUNS - WHERE_FILES_ARE
    return {
        key: values[key]
        for key, origin in resolved.origins.items()
        if (origin == request.recipe or origin.startswith(SETTING)) and key in shown
    }


def search_space(request: StudyRequest) -> SearchSpace:
    options, config = request.options(SearchOptions), base_config(request)
    (lightest, heaviest), (fewest, most) = options.weight, options.proxies_per_class
    return SearchSpace(
        weight=options.weight,
        proxies=options.proxies_per_class,
        first={
            WEIGHT: min(max(config.ccp.weight, lightest), heaviest),
            PROXIES: min(max(config.ccp.proxies_per_class, fewest), most),
        },
        startup_trials=options.startup_trials,
        warm_up_steps=config.ccp.start_step + config.ccp.patience * config.train.evaluate_every,
        seed=config.run.seed,
    )


def trial_store(request: StudyRequest, folder: Path) -> TrialStore:
    method, config = method_of(request), base_config(request)
    # The settings in its folder bind a search of its own to its data. Machines that share a search may keep the data in
    # different places: there, its name tells their content.
    contents = "" if request.storage is None else contents_digest(config)
    return TrialStore(folder, request.storage, search_name(recipe_label(request.data), method, config, contents))


def contents_digest(config: Config) -> str:
    """Digest what trains: the images or features of the training half, and the backbone's weights."""
    train, weights = build_data(config.data).train, config.model.weights
    return digest(train.source.signature(train.positions), "" if weights is None else file_digest(Path(weights)))


def trial_run(request: StudyRequest, folder: Path, number: int, point: Point) -> PlannedRun:
    """Plan the run of a trial. All have the same seed: they differ in nothing but the point."""
    settings = (f"ccp.weight={point[WEIGHT]!r}", f"ccp.proxies_per_class={point[PROXIES]}")
    name = trial_name(number)
    run = plan_run(name, folder / name, request.recipes(method_of(request)), (*request.run_settings, *settings))
    return replace(run, is_supervised=True)


STUDY = Study(
    "Which lambda, and how many proxies? A Bayesian search with pruning; the best becomes a recipe",
    plan,
    conclude,
    train,
    uses_storage=True,
)
