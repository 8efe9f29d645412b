"""Studies on precomputed features, a few steps long."""

import pytest

from ccp_dml.studies.request import StudyRequest

QUICK = (
    "train.max_steps=12",
    "train.evaluate_every=4",
    "model.embedding_dim=4",
    "protocol.folds=2",
)


@pytest.fixture
def ask(features):
    """A request for a quick study of the features."""

    def request(study, *settings, losses=("c2",), is_full=False, storage=None):
        batch = () if study == "batch-size" else ("train.classes_per_batch=3",)  # which that one varies itself
        given = (f"data.path={features}", *QUICK, *batch, *settings)
        return StudyRequest(study, "features", losses, is_full, given, storage)

    return request
