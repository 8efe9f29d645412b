"""What training cost, on the page."""

from collections.abc import Callable, Sequence
from typing import Any

from ccp_dml.reports.cost import Cost, ratio
from ccp_dml.reports.formats import count, duration, megabytes, milliseconds
from ccp_dml.reports.run_folder import RunFolder, run_labels
from ccp_dml.reports.sections import Section

COLUMNS: dict[str, tuple[Callable[[Cost], Any], Callable[[Any], str]]] = {
    "Time per step": (lambda cost: cost.seconds_per_step, milliseconds),
    "Steps": (lambda cost: cost.steps, count),
    "Whole time": (lambda cost: cost.seconds, duration),
    "Until the best step": (lambda cost: cost.seconds_to_best, duration),
    "Peak memory": (lambda cost: cost.process_memory, megabytes),
    "Peak GPU memory": (lambda cost: cost.device_memory, megabytes),
}


def cost(runs: Sequence[RunFolder]) -> Section | None:
    """Time and memory of each run, and as ratios to the first; None where no run recorded a time."""
    costs = [Cost.of(run) for run in runs]
    if all(one.seconds is None for one in costs):
        return None
    known = {title: column for title, column in COLUMNS.items() if any(column[0](one) is not None for one in costs)}
    rows = [
        {
            "label": label,
            "style": style,
            "cells": [
                (show(value(one)), ratio(value(one), value(costs[0])) if style > 0 else None)
                for value, show in known.values()
            ],
            "shares": one.shares(),
        }
        for style, (one, label) in enumerate(zip(costs, run_labels(runs), strict=True))
    ]
    content = {"titles": list(known), "rows": rows, "steps_alone": all(one.training is not None for one in costs)}
    return Section("cost", "Cost", "section_cost.html", content)
