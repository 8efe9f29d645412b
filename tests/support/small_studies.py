"""Plan, train and conclude small studies, for the tests of each of them."""

import json

from ccp_dml.plans.runner import LocalRunner, PlanWatcher
from ccp_dml.studies import STUDIES

SMALL_COST = (
    *("model.head_init=xavier", "study.rounds=3", "study.steps=2", "study.evaluations=2"),
    *("train.max_steps=24", "ccp.proxies_per_class=3", "ccp.pool_per_class=4", "ccp.start_step=0"),
)
"""Settings with which every cost is measured a few times."""


def planned(request, folder):
    return STUDIES[request.study].plan(request, folder)


class Notes(PlanWatcher):
    """Remembers what goes on beside the runs."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


def carry_out(request, folder):
    """Train all runs, and measure them if the study does; return what was told of it."""
    watcher = Notes()
    assert STUDIES[request.study].train(request, folder, planned(request, folder), LocalRunner(), watcher) == []
    return watcher.texts


def concluded(request, folder):
    return STUDIES[request.study].conclude(request, folder, planned(request, folder))


def results(plan, **coordinates):
    """Read the results of the runs at some coordinates from their folders."""
    return [
        json.loads((one.run.folder / "result.json").read_text())
        for one in plan.runs
        if coordinates.items() <= one.coordinates.items()
    ]
