"""Compare the final scores and the settings of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records.run_folder import RunFolder, run_labels


@dataclass(frozen=True)
class ComparedScore:
    """One score of one run beside the same score of the others; scores are fractions."""

    value: float | None
    is_best: bool
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
    return [
        ComparedRun(
            run=run,
            label=label,
            scores={key: _compared(values[key], position) for key in SCORE_TITLES},
            is_marked=run.settings().get("protocol.select_on") == "test",
        )
        for position, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True))
    ]


def differing_settings(runs: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """Find the dotted keys whose values differ, with one value per run; None where a run has no such key."""
    settings = [run.settings() for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [one.get(key) for one in settings] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _compared(values: Sequence[float | None], position: int) -> ComparedScore:
    value, first = values[position], values[0]
    known = [other for other in values if other is not None]
    gain = value - first if position > 0 and value is not None and first is not None else None
    return ComparedScore(
        value=value,
        is_best=len(known) > 1 and value == max(known),
        gain=gain,
        relative_gain=gain / first if gain is not None and first else None,
    )
