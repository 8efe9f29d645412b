"""Studies on precomputed features, a few steps long."""

import pytest

from ccp_dml.plans import runner
from ccp_dml.plans.worker import Failed, Share, attempt
from ccp_dml.runs.datasets import build_data
from ccp_dml.studies.request import StudyRequest

QUICK = (
    "train.max_steps=12",
    "train.evaluate_every=4",
    "train.classes_per_batch=3",
    "model.embedding_dim=4",
    "protocol.folds=2",
)


@pytest.fixture
def ask(features):
    """A request for a quick study of the features."""

    def request(study, *settings, losses=("c2",), is_full=False, storage=None):
        return StudyRequest(study, "features", losses, is_full, (f"data.path={features}", *QUICK, *settings), storage)

    return request


class Silent:
    """A parent that does not listen."""

    def send(self, message):
        pass


@pytest.fixture
def in_this_process(monkeypatch):
    """Train without worker processes, whose start takes seconds each."""

    def execute(runs, workers=1, watcher=None):  # noqa: ARG001
        outcomes = [(run, attempt(run, Share(1, 1, None), build_data, Silent())) for run in runs]
        return [runner.Failure(run, found.message) for run, found in outcomes if isinstance(found, Failed)]

    monkeypatch.setattr(runner, "execute", execute)
