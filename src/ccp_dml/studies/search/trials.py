"""Turn trials of a search into supervised runs, and tell Optuna what the runs report."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.plans.plan import PlannedRun, state_of
from ccp_dml.plans.runner import PlanWatcher
from ccp_dml.records import layout
from ccp_dml.records.run_folder import RunFolder

GIVEN_UP = (TrialState.PRUNED, TrialState.FAIL)
OVER = (TrialState.COMPLETE, *GIVEN_UP)
WEIGHT, PROXIES = "weight", "proxies"
OWNER, ERROR = "owner", "error"
Point = dict[str, Any]  # {"weight": lambda, "proxies": P}


@dataclass(frozen=True)
class SearchSpace:
    """What is searched, and how."""

    weight: tuple[float, float]  # lambda, on a logarithmic scale
    proxies: tuple[int, int]  # P
    first: Point  # the nearest to the recipe's own values: the search should beat it
    startup_trials: int  # at random, before the sampler has something to learn from
    warm_up_steps: int  # of a run, before it may be pruned
    seed: int

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {WEIGHT: FloatDistribution(*self.weight, log=True), PROXIES: IntDistribution(*self.proxies)}


class TrialRuns(PlanWatcher):
    """Gives one run after the other, each where the results before it promise most, and prunes the hopeless.

    Args:
        study: Optuna's, which may be shared by several machines.
        space: what is searched.
        total: trials in the end, those of other machines included.
        plan: from a trial's number and point to its run.
        owner: only its trials are gone on with, as one of another owner may be running right now. None: all are ours.
        shown: is told everything, too.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: SearchSpace,
        total: int,
        plan: Callable[[int, Point], PlannedRun],
        owner: str | None,
        shown: PlanWatcher | None = None,
    ) -> None:
        self.study, self.space, self.total, self.plan = study, space, total, plan
        self.owner, self.shown = owner, shown or PlanWatcher()
        self.trials: dict[str, Trial] = {}  # by the name of their runs
        self.study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=space.startup_trials, n_warmup_steps=space.warm_up_steps
        )

    def runs(self) -> Iterator[PlannedRun]:
        """Yield what was interrupted, to go on exactly there, then new trials until there are enough."""
        for interrupted in self.trials_in(TrialState.RUNNING):
            if is_own(interrupted, self.owner):
                run = self.run_of(Trial(self.study, interrupted._trial_id))
                if not self.is_over(run):
                    yield run
        while len(self.trials_in(*OVER, TrialState.RUNNING)) < self.total:
            yield self.run_of(self.ask())

    def trials_in(self, *states: TrialState) -> list[FrozenTrial]:
        """List the trials in these states, those of other machines included."""
        return self.study.get_trials(deepcopy=False, states=states)

    def ask(self) -> Trial:
        """Begin a new trial. Its sampler is seeded by its number and owner: earlier interruptions change nothing."""
        number = len(self.study.get_trials(deepcopy=False))
        if number == 0:
            self.study.enqueue_trial(self.space.first)
        seed = derive_seed(self.space.seed, f"search {self.owner}", number) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=self.space.startup_trials, multivariate=True, constant_liar=True
            )
        trial = self.study.ask(self.space.distributions)
        if self.owner is not None:
            trial.set_user_attr(OWNER, self.owner)
        return trial

    def run_of(self, trial: Trial) -> PlannedRun:
        point = {
            WEIGHT: trial.suggest_float(WEIGHT, *self.space.weight, log=True),
            PROXIES: trial.suggest_int(PROXIES, *self.space.proxies),
        }
        run = self.plan(trial.number, point)
        self.trials[run.name] = trial
        return run

    def is_over(self, run: PlannedRun) -> bool:
        """Tell whether an interrupted trial had ended, or should be pruned; if so, Optuna is told."""
        if state_of(run.folder).state == "open":
            return False
        folder = RunFolder.read(run.folder)
        trial = self.trials[run.name]
        for row in folder.metrics:
            report(trial, row["map_at_r"], row["step"])
        if folder.result is None and not trial.should_prune():
            return False
        self.shown.started(run)  # who watches should know every run that ends
        if folder.result is None:
            self.stopped(run)
        else:
            self.finished(run, folder.result)
        return True

    def started(self, run: PlannedRun) -> None:
        self.shown.started(run)

    def progress(self, run: PlannedRun, step: int, best: float | None) -> None:
        self.shown.progress(run, step, best)

    def goes_on(self, run: PlannedRun, step: int, score: float) -> bool:
        trial = self.trials[run.name]
        report(trial, score, step)
        return not trial.should_prune()

    def stopped(self, run: PlannedRun) -> None:
        self.study.tell(self.trials[run.name], state=TrialState.PRUNED)
        for name in (layout.CHECKPOINT, layout.PREVIOUS_CHECKPOINT):
            (run.folder / name).unlink(missing_ok=True)  # nobody goes on here, and there may be many
        self.shown.stopped(run)

    def finished(self, run: PlannedRun, result: dict[str, Any]) -> None:
        self.study.tell(self.trials[run.name], result["validation"]["map_at_r"])  # never the test half's (D27)
        self.shown.finished(run, result)

    def failed(self, run: PlannedRun, message: str) -> None:
        self.trials[run.name].set_user_attr(ERROR, message)
        self.study.tell(self.trials[run.name], state=TrialState.FAIL)
        self.shown.failed(run, message)


def report(trial: Trial, score: float, step: int) -> None:
    """Tell an evaluation. One that was told before a kill, and computed again after it, has the same score."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*already reported")
        trial.report(score, step)


def is_own(trial: FrozenTrial, owner: str | None) -> bool:
    return owner is None or trial.user_attrs.get(OWNER) == owner


def trial_point(trial: FrozenTrial) -> Point | None:
    """Read a trial's point; None if it was killed before that was drawn."""
    return {name: trial.params[name] for name in (WEIGHT, PROXIES)} if len(trial.params) == 2 else None


def trial_name(number: int) -> str:
    """Name a trial's run, and its folder within the study's."""
    return f"trials/{number:04}"
