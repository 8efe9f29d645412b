"""A kill at any rename or write loses nothing. `make attack` kills a thousand times."""

import numpy as np
import pytest

from attack.kills import keep_records, kill_and_go_on, train_features
from attack.verdicts import BAD


def test_records_survive_a_kill_at_any_event(tmp_path):
    keep_records(tmp_path / "whole", evaluations=2)
    for event in range(1, 1000, 6):
        found = kill_and_go_on(lambda out: keep_records(out, 2), tmp_path / "whole", tmp_path / f"{event}", event)
        if found is None:
            break
        assert found[0] not in BAD, found[1]
    assert event > 40


@pytest.mark.slow
def test_training_survives_a_kill_at_every_event(tmp_path):
    rng = np.random.default_rng(0)
    features = tmp_path / "f.npz"
    np.savez(features, features=rng.normal(size=(48, 4)).astype("f4"), labels=np.arange(12).repeat(4))
    train_features(features, tmp_path / "whole")
    for event in range(1, 1000, 9):
        found = kill_and_go_on(
            lambda out: train_features(features, out), tmp_path / "whole", tmp_path / f"{event}", event
        )
        if found is None:
            break
        assert found[0] not in BAD, found[1]
    assert event > 40
