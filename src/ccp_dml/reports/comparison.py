"""Compare the final scores and the settings of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccp_dml.config.readers import reads
from ccp_dml.config.schema import Config
from ccp_dml.evaluation import SCORE_TITLES, paired_difference
from ccp_dml.records.logbook import HOW_IT_RUNS, WHERE_FILES_ARE, without_later
from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.reports.words import difference_text

NOT_THE_METHOD = HOW_IT_RUNS | WHERE_FILES_ARE | {"run.seed", "protocol.fold", "run.map_points"}


@dataclass(frozen=True)
class ComparedScore:
    """One score of one run beside the same score of the others; scores are fractions."""

    value: float | None
    is_best: bool
    is_bold: bool  # the best, and better than the first run's method by more than chance explains
    gain: float | None  # over the first run; None for that run itself
    relative_gain: float | None  # the gain as a share of the first run's score

    def gain_text(self) -> str:
        """Write the gain, for example "+10.1 points (+29.9 %)"; empty where there is nothing to compare with."""
        if self.gain is None:
            return ""
        relative = "" if self.relative_gain is None else f" ({100 * self.relative_gain:+.1f} %)"
        return f"{100 * self.gain:+.1f} points{relative}"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    run: RunFolder
    label: str
    scores: dict[str, ComparedScore]  # by the score's key in result.json
    is_marked: bool  # chosen on the test classes themselves, which every table must say (D28)


def compare(runs: Sequence[RunFolder]) -> list[ComparedRun]:
    """Compare the test scores of all runs with those of the first."""
    values = {key: [run.score("test", key) for run in runs] for key in SCORE_TITLES}
    methods = group_by_method(runs)
    clear = {
        key: {place for method in methods[1:] if is_clearly_better(method, methods[0], key) for place in method.places}
        for key in SCORE_TITLES
    }
    return [
        ComparedRun(
            run=run,
            label=label,
            scores={key: _compared(values[key], position, position in clear[key]) for key in SCORE_TITLES},
            is_marked=run.settings().get("protocol.select_on") == "test",
        )
        for position, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True))
    ]


def differing_settings(runs: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """Find the dotted keys whose values differ, with one value per run; None where a run has no such key.

    A key that none of the runs reads is left out: a recipe may set what belongs to another recipe's choice.
    """
    settings = [run.settings() for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [one.get(key) for one in settings] for key in keys}
    differing = {key: row for key, row in values.items() if any(value != row[0] for value in row)}
    return {key: row for key, row in differing.items() if any(_reads(run, key) for run in runs)}


def _reads(run: RunFolder, key: str) -> bool:
    """Tell whether a run reads a setting; of a run of another version nobody can tell, so it counts as reading it."""
    try:
        return reads(Config.model_validate(run.config), key)
    except ValueError:
        return True


@dataclass(frozen=True)
class Method:
    """Runs that differ in fold, seed and machine alone."""

    label: str
    places: tuple[int, ...]  # of its runs among those compared
    runs: tuple[RunFolder, ...]

    def scores(self, key: str) -> dict[tuple[Any, Any], float]:
        """Give the test scores of its runs by fold and seed."""
        found = {}
        for run in self.runs:
            settings, value = run.settings(), run.score("test", key)
            if value is not None:
                found[settings.get("protocol.fold"), settings.get("run.seed")] = value
        return found


def group_by_method(runs: Sequence[RunFolder]) -> list[Method]:
    """Put runs together that differ in fold, seed and machine alone, in the order of their first runs.

    A run of an earlier version lacks later settings; it belongs to those that have what it did then.
    """
    labels = run_labels(runs)
    groups: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        settings = {key: value for key, value in without_later(run.settings()).items() if key not in NOT_THE_METHOD}
        groups.setdefault(repr(sorted(settings.items())), []).append(place)
    return [
        Method(
            labels[places[0]] + ("" if len(places) == 1 else f" and {len(places) - 1} more"),
            tuple(places),
            tuple(runs[place] for place in places),
        )
        for places in groups.values()
    ]


def is_clearly_better(method: Method, baseline: Method, key: str) -> bool:
    difference = paired_difference(method.scores(key), baseline.scores(key))
    return difference is not None and difference.is_clear and difference.mean > 0


def verdicts(runs: Sequence[RunFolder], key: str = "map_at_r") -> list[str]:
    """Say of each method what it has over the first, in runs of equal fold and seed."""
    baseline, *others = group_by_method(runs)
    found = []
    for method in others:
        what = f"{method.label} against {baseline.label}, {SCORE_TITLES[key]}"
        difference = paired_difference(method.scores(key), baseline.scores(key))
        if difference is not None:
            found.append(f"{what}: {difference_text(difference)}.")
        elif method.scores(key) and baseline.scores(key):
            found.append(f"{what}: no runs of equal fold and seed, so that nothing can be compared in pairs.")
    return found


def _compared(values: Sequence[float | None], position: int, is_clear: bool) -> ComparedScore:
    value, first = values[position], values[0]
    known = [other for other in values if other is not None]
    gain = value - first if position > 0 and value is not None and first is not None else None
    return ComparedScore(
        value=value,
        is_best=(is_best := len(known) > 1 and value == max(known)),
        is_bold=is_best and is_clear,
        gain=gain,
        relative_gain=gain / first if gain is not None and first else None,
    )
