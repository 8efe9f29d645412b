"""Conclude a search: draw its points, tell which value matters, and write the best point as a recipe."""

import json
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tomli_w
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from ccp_dml.foundation.files import write_text
from ccp_dml.records import layout
from ccp_dml.records.documents import read_json
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure, Line, Lines, Points, Scatter, Surface
from ccp_dml.studies.search.storage import TrialStore
from ccp_dml.studies.search.trials import ERROR, OWNER, PROXIES, WEIGHT, SearchSpace, is_own, trial_name, trial_point
from ccp_dml.studies.study import Conclusion

NAMES = {WEIGHT: "lambda", PROXIES: "P"}
ON_VALIDATION = "MAP@R on validation classes (%)"
FEWEST_FOR_IMPORTANCE = 6


def conclude_search(
    store: TrialStore, space: SearchSpace, data: str, method: str, trained_with: Mapping[str, Any]
) -> Conclusion | None:
    """Write best.toml, and say what the trials so far show; None before the first is complete.

    `trained_with` is what all trials have beyond the recipes of data set and method, by dotted key.
    """
    study = store.open()
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial_point(trial) is not None]
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        return None
    best = study.best_trial
    value = f"validation MAP@R {best.value:.4f}, trial {best.number} of {len(trials)}"
    header = f"The best point of a search ({value}); use: ccp train {data} {method} {layout.BEST_RECIPE}"
    write_best(store.folder / layout.BEST_RECIPE, header, best, trained_with)
    importance = importances(study, complete)
    figures = [map_figure(trials, complete, best, space), history_figure(complete)]
    if importance is not None:
        bars = BarGroup("share", list(importance.values()))
        panel = Bars("", "", "share of the variance explained", [NAMES[name] for name in importance], [bars])
        caption = "How much of the difference between complete trials each value accounts for (functional ANOVA)."
        figures.append(Figure("importance", "Importance", caption, [panel]))
    return Conclusion(
        rows=[trial_row(trial) for trial in trials],
        figures=figures,
        paragraph=paragraph(store.folder, trials, complete, best, importance),
        notes=notes(trials, store.owner),
    )


def write_best(path: Path, header: str, best: FrozenTrial, trained_with: Mapping[str, Any]) -> None:
    """Write the best point as a recipe, with all of CCP's settings that it was found with; name the others."""
    point = {"ccp.weight": best.params[WEIGHT], "ccp.proxies_per_class": best.params[PROXIES]}
    settings = {**trained_with, **point}
    ccp = {key.removeprefix("ccp."): value for key, value in settings.items() if key.startswith("ccp.")}
    others = [
        f"--set {shlex.quote(f'{key}={value if isinstance(value, str) else json.dumps(value)}')}"
        for key, value in settings.items()
        if not key.startswith("ccp.")
    ]
    note = f"# The search trained with {' '.join(others)}, which is not part of this recipe.\n" if others else ""
    write_text(path, f"# {header}\n{note}{tomli_w.dumps({'ccp': ccp})}")


def importances(study: optuna.Study, complete: Sequence[FrozenTrial]) -> dict[str, float] | None:
    """Compute each value's share of the differences; None if trials are too few, or all alike."""
    if len(complete) < FEWEST_FOR_IMPORTANCE or len({trial.value for trial in complete}) == 1:
        return None
    return get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))


def map_figure(
    trials: Sequence[FrozenTrial], complete: Sequence[FrozenTrial], best: FrozenTrial, space: SearchSpace
) -> Figure:
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    others = [trial for trial in complete if trial.number != best.number]
    kinds = [
        points("complete", others, 0, "circle", 6.0),
        points("pruned", pruned, 1, "cross", 6.0),
        points("failed", failed, 5, "square", 6.0),
        points("best", [best], 1, "star", 12.0),
    ]
    shown = [kind for kind in kinds if kind.x]
    surface = fit_surface(
        [(trial.params[WEIGHT], trial.params[PROXIES]) for trial in complete],
        [100 * score(trial) for trial in complete],
        space.weight,
        space.proxies,
    )
    x_label, y_label = "lambda, the pull's weight", "P, proxies per class"
    if surface is None:
        caption = "The points tried; too few are complete to draw a surface between them."
        return Figure("map", "Map of the search", caption, [Scatter("", x_label, y_label, shown, log_x=True)])
    caption = (
        "Validation MAP@R between the points tried, as a Gaussian process of the complete trials has it. It is a guess "
        "where no point is near; pruned trials are marked, but did not shape it."
    )
    panel = Surface(
        "", x_label, y_label, "MAP@R (%)", surface.weights, surface.proxies, surface.values, shown, log_x=True
    )
    return Figure("map", "Map of the search", caption, [panel])


def points(label: str, trials: Sequence[FrozenTrial], style: int, symbol: Any, size: float) -> Points:
    return Points(
        label,
        [trial.params[WEIGHT] for trial in trials],
        [trial.params[PROXIES] for trial in trials],
        style,
        symbol,
        size,
        [point_text(trial) for trial in trials],
    )


def point_text(trial: FrozenTrial) -> str:
    value = "" if trial.value is None else f": {100 * trial.value:.2f} %"
    step = "" if trial.last_step is None else f" at step {trial.last_step}"
    ended = step if trial.state == TrialState.PRUNED else ""
    return f"trial {trial.number}{value}{ended}<br>lambda {trial.params[WEIGHT]:.3g}, P {trial.params[PROXIES]}"


def history_figure(complete: Sequence[FrozenTrial]) -> Figure:
    best_so_far, line = 0.0, []
    for trial in complete:
        best_so_far = max(best_so_far, score(trial))
        line.append(100 * best_so_far)
    numbers = [trial.number for trial in complete]
    lines = [
        Line("each trial", numbers, [100 * score(trial) for trial in complete], 6),
        Line("best so far", numbers, line, 0),
    ]
    panel = Lines("", "trial", ON_VALIDATION, lines, has_markers=True)
    return Figure(
        "history", "History", "Complete trials in their order; numbers between them were pruned or failed.", [panel]
    )


def score(trial: FrozenTrial) -> float:
    assert trial.value is not None, "a complete trial has a value"
    return trial.value


def trial_row(trial: FrozenTrial) -> dict[str, Any]:
    """Make a line of results.csv, without the test half's scores: nobody is to choose by them (D27)."""
    return {
        "trial": trial.number,
        WEIGHT: trial.params[WEIGHT],
        PROXIES: trial.params[PROXIES],
        "state": "failed" if trial.state == TrialState.FAIL else trial.state.name.lower(),
        "validation_map_at_r": trial.value,
        "last_step": trial.last_step,
        "seconds": None if trial.duration is None else round(trial.duration.total_seconds(), 1),
        "owner": trial.user_attrs.get(OWNER, ""),
        "folder": trial_name(trial.number),
    }


def paragraph(
    folder: Path,
    trials: Sequence[FrozenTrial],
    complete: Sequence[FrozenTrial],
    best: FrozenTrial,
    importance: dict[str, float] | None,
) -> str:
    states = [trial.state for trial in trials]
    ranked = sorted((score(trial) for trial in complete), reverse=True)
    told = [
        f"Of {len(trials)} trials {len(complete)} are complete, {states.count(TrialState.PRUNED)} pruned and "
        f"{states.count(TrialState.FAIL)} failed. The best by validation classes is trial {best.number} with lambda = "
        f"{best.params[WEIGHT]:.3g} and P = {best.params[PROXIES]}: MAP@R {100 * ranked[0]:.2f} %."
    ]
    first = next((trial for trial in complete if trial.number == 0), None)
    if first is not None and first.number != best.number:
        told.append(
            f"That is {100 * (ranked[0] - score(first)):+.2f} points over trial 0, the point of the search nearest to "
            f"the recipe's own values (lambda = {first.params[WEIGHT]:.3g}, P = {first.params[PROXIES]})."
        )
    if len(ranked) > 1:
        told.append(
            f"The runner-up has {100 * ranked[1]:.2f} %; each point is one run with one seed, the best of many is "
            "flattered by luck, and differences of this size should be checked with other seeds."
        )
    if importance is not None:
        main = max(importance, key=lambda name: importance[name])
        told.append(f"Most of the difference is due to {NAMES[main]} ({100 * importance[main]:.0f} %).")
    test = test_score(folder / trial_name(best.number))
    if test is not None:
        told.append(f"On unseen classes, looked at only now, the best has MAP@R {100 * test:.2f} %.")
    return " ".join(told)


def test_score(run: Path) -> float | None:
    """Look up MAP@R of a run on the test half; None where another machine trained it."""
    result = read_json(run / layout.RESULT)
    return None if result is None else result["test"]["map_at_r"]


def notes(trials: Sequence[FrozenTrial], owner: str | None) -> list[str]:
    running = [trial for trial in trials if trial.state == TrialState.RUNNING]
    elsewhere = [trial for trial in running if not is_own(trial, owner)]
    told = [f"Trial {trial.number} failed: {trial.user_attrs[ERROR]}" for trial in trials if ERROR in trial.user_attrs]
    if elsewhere:
        told.append(f"{len(elsewhere)} trial(s) run on another machine, or did when it stopped.")
    return told


FEWEST_POINTS = 4
COLUMNS = 49


@dataclass(frozen=True)
class FittedSurface:
    """`values[row][column]` at `proxies[row]` and `weights[column]`."""

    weights: list[float]
    proxies: list[float]
    values: list[list[float]]


def fit_surface(
    points: Sequence[tuple[float, float]],
    scores: Sequence[float],
    weight_range: tuple[float, float],
    proxies_range: tuple[int, int],
) -> FittedSurface | None:
    """Fit a Gaussian process with noise over log lambda and P; None if points are too few to say anything between them.

    `points` are pairs of lambda and P.
    """
    if len(points) < FEWEST_POINTS:
        return None
    low, high = np.log10(weight_range)
    first, last = proxies_range

    def scaled(weights: np.ndarray, proxies: np.ndarray) -> np.ndarray:
        """Scale both to 0..1, (N, 2): a length then means the same in both directions."""
        return np.stack([(np.log10(weights) - low) / (high - low), (proxies - first) / max(1, last - first)], axis=1)

    tried = np.asarray(points, dtype=float)
    kernel = ConstantKernel(1.0) * Matern(length_scale=[0.3, 0.3], length_scale_bounds=(0.05, 10.0), nu=2.5)
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(0.01, (1e-6, 1.0)), normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a flat direction has no best length, and needs none
        process.fit(scaled(tried[:, 0], tried[:, 1]), np.asarray(scores, dtype=float))
    weights = np.logspace(low, high, COLUMNS)
    proxies = np.arange(first, last + 1, dtype=float)
    grid = np.stack(np.meshgrid(weights, proxies), axis=-1).reshape(-1, 2)  # (rows * columns, 2)
    values = process.predict(scaled(grid[:, 0], grid[:, 1])).reshape(len(proxies), len(weights))
    return FittedSurface(weights.tolist(), proxies.tolist(), values.tolist())
