"""Studies on precomputed features, a few steps long."""

import pytest

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
