"""Compare the final scores and the settings of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ccp_dml.config.readers import reads
from ccp_dml.config.schema import Config, DataConfig
from ccp_dml.evaluation import SCORE_TITLES, PairedDifference, lead_over, paired_difference
from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHAT_IS_TESTED, WHERE_FILES_ARE, without_later
from ccp_dml.reports.words import data_text, difference_text, setting, winner_text

NOT_THE_METHOD = HOW_IT_RUNS | WHERE_FILES_ARE | {"run.seed", "protocol.fold", "run.map_points"}

DECISIVE = "map_at_r"
"""The score by which methods win."""


@dataclass(frozen=True)
class ComparedScore:
    """One score of one run beside the same score of the others; scores are fractions."""

    value: float | None
    before: float | None = None  # of the first method's run of equal fold and seed, unless that is this run
    is_best: bool = False  # of the runs that were tested on the first run's data
    is_bold: bool = False  # the best, and its method is better than every other by more than chance explains

    @property
    def gain(self) -> float | None:
        return None if self.value is None or self.before is None else self.value - self.before

    @property
    def relative_gain(self) -> float | None:
        return self.gain / self.before if self.gain is not None and self.before else None

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
    """Compare the test scores of all runs with those of the first method."""
    methods, halves = group_by_method(runs), halves_of(runs)
    comparable = [place for place, half in enumerate(halves) if half == halves[0]]
    partners = {(pair_of(runs[place]), runs[place].selected_on_test): place for place in reversed(methods[0].places)}

    def compared(key: str) -> list[ComparedScore]:
        values = [run.score("test", key) for run in runs]
        known = [value for place in comparable if (value := values[place]) is not None]
        clear = {place for method in methods if is_clearly_best(method, methods, key) for place in method.places}
        scores = [ComparedScore(value) for value in values]
        for place in comparable:
            partner = partners.get((pair_of(runs[place]), runs[place].selected_on_test), place)
            before = None if partner == place else values[partner]
            is_best = len(known) > 1 and values[place] == max(known)
            scores[place] = ComparedScore(values[place], before, is_best, is_best and place in clear)
        return scores

    scores = {key: compared(key) for key in SCORE_TITLES}
    return [
        ComparedRun(run, label, {key: of_all[place] for key, of_all in scores.items()}, run.selected_on_test)
        for place, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True))
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


def halves_of(runs: Sequence[RunFolder]) -> list[int]:
    """Number the test halves of the runs: equal numbers stand for the same images."""
    first_of_half: list[RunFolder] = []
    numbers = []
    for run in runs:
        known = (number for number, first in enumerate(first_of_half) if tested_alike(run, first))
        numbers.append(next(known, len(first_of_half)))
        if numbers[-1] == len(first_of_half):
            first_of_half.append(run)
    return numbers


def tested_alike(run: RunFolder, other: RunFolder) -> bool:
    """Tell whether two runs were tested on the same images: by the digests of their data, or else by their settings.

    A digest is of both halves, and data in memory have another one without augmentation. So digests that differ say
    nothing of the test half where the runs differ in how they train on it.
    """
    digest, others = run.environment.get("data"), other.environment.get("data")
    if digest is not None and digest == others:
        return True
    if digest is None or others is None or _sees_training(run) != _sees_training(other):
        return _what_is_tested(run) == _what_is_tested(other)
    return False


def _sees_training(run: RunFolder) -> tuple[bool, bool]:
    settings = run.settings()
    return settings.get("data.augment") == "none", settings.get("protocol.hold_out") == "nothing"


def _what_is_tested(run: RunFolder) -> dict[str, Any]:
    given, usual = run.settings(), DataConfig()  # runs of earlier versions lack later keys
    return {key: given.get(key, getattr(usual, key.removeprefix("data."))) for key in WHAT_IS_TESTED}


def different_data(runs: Sequence[RunFolder]) -> list[str]:
    """Describe each test half, if the runs were not all tested on the same one; else the list is empty."""
    halves = halves_of(runs)
    firsts = [runs[halves.index(half)] for half in sorted(set(halves))]
    if len(firsts) == 1:
        return []
    names = [data_text(run.settings()) for run in firsts]
    if len(set(names)) == len(names):
        return names
    tested = [_what_is_tested(run) for run in firsts]
    telling = [key for key in WHAT_IS_TESTED if any(one[key] != tested[0][key] for one in tested)]
    return [
        f"{name}, "
        + (
            ", ".join(f"{key} = {setting(one[key])}" for key in telling)
            or f"with the digest {run.environment.get('data')}"  # the file was replaced meanwhile
        )
        for name, one, run in zip(names, tested, firsts, strict=True)
    ]


@dataclass(frozen=True)
class Method:
    """Runs that differ in fold, seed and machine alone."""

    label: str
    half: int  # which of the test halves its runs were tested on
    places: tuple[int, ...]  # of its runs among those compared
    runs: tuple[RunFolder, ...]

    def scores(self, key: str) -> dict[tuple[Any, Any], float]:
        """Give the test scores of its runs by fold and seed."""
        known = ((pair_of(run), run.score("test", key)) for run in self.runs)
        return {pair: value for pair, value in known if value is not None}


def pair_of(run: RunFolder) -> tuple[Any, Any]:
    """Tell what runs have in common that are compared as a pair: fold and seed."""
    settings = run.settings()
    return settings.get("protocol.fold"), settings.get("run.seed")


def group_by_method(runs: Sequence[RunFolder]) -> list[Method]:
    """Put runs together that differ in fold, seed and machine alone, in the order of their first runs.

    Files may lie elsewhere on another machine: data and weights count, not their place. A run of an earlier version
    lacks later settings; it belongs to those that have what it did then.
    """
    labels = run_labels(runs)
    groups: dict[tuple[int, str], list[int]] = {}
    for place, (run, half) in enumerate(zip(runs, halves_of(runs), strict=True)):
        settings = {key: value for key, value in without_later(run.settings()).items() if key not in NOT_THE_METHOD}
        settings["model.weights"] = _first_weights(run)
        groups.setdefault((half, repr(sorted(settings.items()))), []).append(place)
    return [
        Method(
            labels[places[0]] + ("" if len(places) == 1 else f" and {len(places) - 1} more"),
            half,
            tuple(places),
            tuple(runs[place] for place in places),
        )
        for (half, _), places in groups.items()
    ]


def _first_weights(run: RunFolder) -> str:
    """Tell which weights the backbone began with: by their digest where it was recorded, else by the file's name."""
    file = run.settings().get("model.weights")
    return str(run.environment.get("frozen_backbone") or (Path(file).name if file else ""))


def why_no_pairs(method: Method, other: Method) -> str | None:
    """Say why runs of two methods are no pairs, whatever their folds and seeds; None if they may be."""
    if method.half != other.half:
        return "tested on different data"
    if method.runs[0].selected_on_test != other.runs[0].selected_on_test:
        return "only one of the two was selected on the test classes themselves"
    return None


def difference_between(method: Method, baseline: Method, key: str) -> PairedDifference | None:
    """Compare runs of equal fold and seed; None where there are none, or where they were tested or selected unlike."""
    if why_no_pairs(method, baseline) is not None:
        return None
    return paired_difference(method.scores(key), baseline.scores(key))


def is_clearly_best(method: Method, methods: Sequence[Method], key: str) -> bool:
    """Tell whether a method is better than each of the others by more than chance explains; False if it is alone."""
    others = [other for other in methods if other.places != method.places and other.half == method.half]
    gaps = [difference_between(method, other, key) for other in others if other.scores(key)]
    return bool(gaps) and all(gap is not None and gap.is_clear and gap.mean > 0 for gap in gaps)


def verdicts(runs: Sequence[RunFolder]) -> list[str]:
    """Say of each method what MAP@R it has over the first, in runs of equal fold and seed."""
    baseline, *others = group_by_method(runs)
    found = []
    for method in others:
        what = f"{method.label} against {baseline.label}, {SCORE_TITLES[DECISIVE]}"
        difference = difference_between(method, baseline, DECISIVE)
        if difference is not None:
            found.append(f"{what}: {difference_text(difference)}.")
        elif method.scores(DECISIVE) and baseline.scores(DECISIVE):
            reason = why_no_pairs(method, baseline) or "no runs of equal fold and seed"
            found.append(f"{what}: {reason}, so that nothing can be compared in pairs.")
    return found


def winner(runs: Sequence[RunFolder]) -> str | None:
    """Say which of at least three methods wins, or that none does; of two, `verdicts` says all.

    None where methods lack runs that others have, which may be the easy ones.
    """
    methods = {method.label: method for method in group_by_method(runs) if method.scores(DECISIVE)}
    scores = {label: method.scores(DECISIVE) for label, method in methods.items()}
    first = next(iter(methods.values()), None)
    is_fair = all(
        why_no_pairs(method, first) is None and method.scores(DECISIVE).keys() == first.scores(DECISIVE).keys()
        for method in methods.values()
        if first is not None
    )
    if len(methods) < 3 or not is_fair:
        return None
    best = max(scores, key=lambda label: mean(scores[label].values()))
    return winner_text(best, lead_over(best, scores), SCORE_TITLES[DECISIVE])
