"""The section with the cost of training: time and memory, as ratios to the first run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import mean
from typing import Any, Self

from ccp_dml.records.run_folder import RunFolder, number, run_labels
from ccp_dml.reports.sections.section import Section
from ccp_dml.reports.words import count, duration, megabytes, milliseconds, with_sign


@dataclass(frozen=True)
class Cost:
    """The cost of one run; None where it was not recorded. Times are in seconds, memory in bytes."""

    steps: float | None
    seconds: float | None
    seconds_to_best: float | None
    evaluation: float | None  # seconds
    reselection: float | None  # seconds
    process_memory: float | None
    device_memory: float | None

    @classmethod
    def of(cls, run: RunFolder) -> Self:
        """Read the cost of a run from its log and result."""
        last = run.metrics[-1] if run.metrics else {}
        memory = (run.result or {}).get("peak_memory") or {}
        return cls(
            steps=last.get("step"),
            seconds=number(last.get("seconds")),
            seconds_to_best=number((run.best_evaluation() or {}).get("seconds")),
            evaluation=number(last.get("evaluation_seconds")),
            reselection=number(last.get("reselection_seconds")),
            process_memory=number(memory.get("process")),
            device_memory=number(memory.get("device")),
        )

    @classmethod
    def mean(cls, costs: Sequence[Self]) -> Self:
        """Average the costs of several runs; None for what one of them did not record."""
        values = {one.name: [getattr(cost, one.name) for cost in costs] for one in fields(cls)}
        return cls(**{name: None if None in known else mean(known) for name, known in values.items()})

    @property
    def training(self) -> float | None:
        """Compute the seconds of the steps alone; None where evaluations were not timed apart."""
        if self.seconds is None or self.evaluation is None or self.reselection is None:
            return None
        return max(0.0, self.seconds - self.evaluation - self.reselection)

    @property
    def seconds_per_step(self) -> float | None:
        """Compute the time of a step; where evaluations were not timed apart, their time is in it."""
        spent = self.seconds if self.training is None else self.training
        return spent / self.steps if spent is not None and self.steps else None

    def share_of_time(self, part: float | None) -> float | None:
        """Divide the seconds of a part by all seconds."""
        return part / self.seconds if part is not None and self.seconds else None

    def shares(self) -> dict[str, float]:
        """Divide the time into its parts, in the order of a bar; empty where they were not recorded."""
        parts = {"steps": self.training, "evaluation": self.evaluation, "reselection": self.reselection}
        found = {name: share for name, part in parts.items() if (share := self.share_of_time(part)) is not None}
        return found if len(found) == len(parts) else {}


def ratio_to_first(value: float | None, first: float | None) -> float | None:
    """Tell how many times as much as the first run; None where one of the two is unknown."""
    return value / first if value is not None and first else None


COLUMNS: dict[str, tuple[Callable[[Cost], Any], Callable[[Any], str]]] = {
    "Time per step": (lambda cost: cost.seconds_per_step, milliseconds),
    "Steps": (lambda cost: cost.steps, count),
    "Whole time": (lambda cost: cost.seconds, duration),
    "Evaluation": (lambda cost: cost.share_of_time(cost.evaluation), with_sign),
    "Reselection": (lambda cost: cost.share_of_time(cost.reselection), with_sign),
    "Until the best step": (lambda cost: cost.seconds_to_best, duration),
    "Peak memory": (lambda cost: cost.process_memory, megabytes),
    "Peak GPU memory": (lambda cost: cost.device_memory, megabytes),
}


def cost(runs: Sequence[RunFolder]) -> Section | None:
    """Show time and memory of each run, and ratios to the first; None where no run recorded a time."""
    return cost_table(dict(zip(run_labels(runs), map(Cost.of, runs), strict=True)))


def cost_table(costs: dict[str, Cost]) -> Section | None:
    """Show a line per label whose time was recorded, with ratios to the first; None where there is none."""
    timed = [one for one in costs.values() if one.seconds is not None]
    if not timed:
        return None
    first = timed[0]
    known = {
        title: (value, show) for title, (value, show) in COLUMNS.items() if any(value(one) is not None for one in timed)
    }
    rows = [
        {
            "label": label,
            "style": style,
            "cells": [
                (
                    show(value(one)),
                    ratio_to_first(value(one), value(first)) if one is not first and show is not with_sign else None,
                )
                for value, show in known.values()
            ],
            "shares": one.shares(),
        }
        for style, (label, one) in enumerate(costs.items())
        if one.seconds is not None
    ]
    apart = all(one.training is not None for one in timed)
    return Section("cost", "Cost", "section_cost.html", {"titles": list(known), "rows": rows, "steps_alone": apart})
