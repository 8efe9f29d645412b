"""A training with very many classes that is killed and resumed ends as if nothing had happened, to the last bit."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from many_classes import differences, kill_and_compare

from ccp_dml.foundation.checkpoint import load_checkpoint, save_checkpoint
from ccp_dml.functional.row_adam import TOUCHED
from ccp_dml.records import layout

CLASSES = 3_000  # the losses look for the few proxies that count from 2,048 on


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="proxies on disk need Linux")
def test_killed_and_resumed_is_equal_to_the_last_bit_and_a_changed_bit_shows(tmp_path, capfd):
    assert kill_and_compare(tmp_path, CLASSES)
    assert "all equal to the last bit" in capfd.readouterr().out
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    state = load_checkpoint(whole / layout.CHECKPOINT)
    vectors = state["objective"]["proxies.vectors"]
    assert vectors.shape == (CLASSES, 1, 128)
    assert any(TOUCHED in entry for entry in state["trainer"]["optimizer"]["state"].values()), "Adam went by rows"
    vectors[7, 0, 3] = torch.nextafter(vectors[7, 0, 3], torch.tensor(torch.inf))
    save_checkpoint(whole / layout.CHECKPOINT, state)
    assert differences(whole, killed)[0] == ["/objective/proxies.vectors"]
