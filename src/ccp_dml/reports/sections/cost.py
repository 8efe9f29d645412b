"""What training cost, on the page."""

from collections.abc import Callable, Sequence
from typing import Any

from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.reports.cost import Cost, ratio
from ccp_dml.reports.sections.overview import Section
from ccp_dml.reports.words import duration, megabytes, milliseconds, share, whole

COLUMNS: dict[str, tuple[Callable[[Cost], Any], Callable[[Any], str]]] = {
    "Time per step": (lambda cost: cost.seconds_per_step, milliseconds),
    "Steps": (lambda cost: cost.steps, whole),
    "Whole time": (lambda cost: cost.seconds, duration),
    "Evaluation": (lambda cost: cost.share(cost.evaluation), share),
    "Reselection": (lambda cost: cost.share(cost.reselection), share),
    "Until the best step": (lambda cost: cost.seconds_to_best, duration),
    "Peak memory": (lambda cost: cost.process_memory, megabytes),
    "Peak GPU memory": (lambda cost: cost.device_memory, megabytes),
}


def cost(runs: Sequence[RunFolder]) -> Section | None:
    """Time and memory of each run, and as ratios to the first; None where no run recorded a time."""
    return cost_table(dict(zip(run_labels(runs), map(Cost.of, runs), strict=True)))


def cost_table(costs: dict[str, Cost]) -> Section | None:
    """A line per label; the first is what the others are measured against."""
    if all(one.seconds is None for one in costs.values()):
        return None
    first = next(iter(costs.values()))
    known = {
        title: (value, show)
        for title, (value, show) in COLUMNS.items()
        if any(value(one) is not None for one in costs.values())
    }
    rows = [
        {
            "label": label,
            "style": style,
            "cells": [
                (show(value(one)), ratio(value(one), value(first)) if one is not first and show is not share else None)
                for value, show in known.values()
            ],
            "shares": one.shares(),
        }
        for style, (label, one) in enumerate(costs.items())
    ]
    apart = all(one.training is not None for one in costs.values())
    return Section("cost", "Cost", "section_cost.html", {"titles": list(known), "rows": rows, "steps_alone": apart})
