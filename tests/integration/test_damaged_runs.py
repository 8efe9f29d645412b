"""A run whose files have changed on disk: it comes to its own result, or says in a sentence what is wrong."""

import json
import shutil

import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.records.logbook import Logbook

SETTINGS = (
    "train.max_steps=8",
    "train.evaluate_every=2",
    "train.classes_per_batch=4",
    "model.embedding_dim=4",
    "ccp.patience=1",
    "run.map_points=0",
)


def train(features, out, *settings, seed=1):
    options = [part for one in (f"data.path={features}", *SETTINGS, *settings) for part in ("--set", one)]
    return main(["train", "features", "c2-ccp", *options, "--seed", str(seed), "--out", str(out)])


def resume(run, *more):
    return main(["train", "--resume", "--out", str(run), *more])


def result(run):
    found = json.loads((run / "result.json").read_text())
    return {key: value for key, value in found.items() if key not in ("seconds", "peak_memory")}


def flip(file, place=0.5):
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 4
    file.write_bytes(content)


@pytest.fixture
def interrupted(features, tmp_path, monkeypatch):
    """A whole run, and the same interrupted after its third checkpoint."""
    assert train(features, tmp_path / "whole") == 0
    save, calls = Logbook.save, []

    def interrupting(self, state):
        save(self, state)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Logbook, "save", interrupting)
        assert train(features, tmp_path / "run") == 130
    return tmp_path / "run"


@pytest.mark.parametrize("place", [0.05, 0.5, 0.999])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_the_result_is_the_same(interrupted, place, capsys):
    flip(interrupted / "checkpoint.pt", place)
    capsys.readouterr()
    assert resume(interrupted) == 0
    told = capsys.readouterr().err
    assert "checkpoint before it is taken" in told
    assert "Resuming at step 4." in told
    assert result(interrupted) == result(interrupted.parent / "whole")


def test_a_kill_between_the_two_renames_leaves_the_one_before(interrupted):
    (interrupted / "checkpoint.pt").unlink()
    assert resume(interrupted) == 0
    assert result(interrupted) == result(interrupted.parent / "whole")


def test_two_damaged_checkpoints_are_an_error(interrupted, capsys):
    flip(interrupted / "checkpoint.pt")
    flip(interrupted / "checkpoint.previous.pt")
    assert resume(interrupted) == 2
    assert "not a readable checkpoint" in capsys.readouterr().err


def test_damaged_best_weights_come_back_from_the_checkpoint(interrupted):
    whole = interrupted.parent / "whole"
    flip(interrupted / "best.safetensors")
    assert resume(interrupted) == 0
    assert (interrupted / "best.safetensors").read_bytes() == (whole / "best.safetensors").read_bytes()
    before = result(whole)
    flip(whole / "best.safetensors")
    assert main(["evaluate", str(whole)]) == 2
    assert resume(whole) == 0
    assert main(["evaluate", str(whole)]) == 0
    assert result(whole) == before


@pytest.mark.parametrize("other", ["seed", "settings", "data"])
def test_a_checkpoint_of_another_run_is_refused(other, interrupted, features, tmp_path, capsys):
    from conftest import write_features

    elsewhere = write_features(tmp_path / "other.npz", per_class=9) if other == "data" else features
    settings = ["optim.lr=0.5"] if other == "settings" else []
    assert train(elsewhere, tmp_path / "other", *settings, seed=2 if other == "seed" else 1) == 0
    shutil.copy(tmp_path / "other" / "checkpoint.pt", interrupted / "checkpoint.pt")
    before = (interrupted / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert resume(interrupted) == 2
    assert "belongs to another run" in capsys.readouterr().err
    assert (interrupted / "metrics.jsonl").read_bytes() == before


def test_a_changed_log_or_configuration_is_noticed(interrupted, capsys):
    log, config = interrupted / "metrics.jsonl", interrupted / "config.toml"
    text = log.read_text()
    log.write_text(text.replace('"map_at_r": 0.', '"map_at_r": 0.9', 1))
    assert resume(interrupted) == 2
    assert "metrics.jsonl is not what was written up to step 6" in capsys.readouterr().err
    log.write_text(text)
    config.write_text(config.read_text().replace("embedding_dim = 4", "embedding_dim = 5"))
    assert resume(interrupted) == 2
    assert "is not what the run began with" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "config.toml", "certificate.json"])
def test_a_finished_runs_changed_documents_are_refused(name, features, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(features, run) == 0
    text = (run / name).read_text()
    (run / name).write_text(text.replace("0", "1", 1))
    capsys.readouterr()
    assert main(["report", str(run)]) == 2
    assert name in capsys.readouterr().err
    (run / name).write_text(text)
    assert main(["certify", str(run)]) == 0
    assert main(["report", str(run)]) == 0


def test_a_run_without_checksums_goes_on_with_a_note(interrupted, capsys):
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        state = torch.load(interrupted / name, weights_only=True)
        torch.save(
            {key: value for key, value in state.items() if key not in ("belongs_to", "log_digest")}, interrupted / name
        )
    assert resume(interrupted) == 0
    assert "no checksum" in capsys.readouterr().err
    assert result(interrupted) == result(interrupted.parent / "whole")


def test_settings_that_do_not_touch_training_may_change(interrupted, features, capsys):
    options = [
        part for one in (f"data.path={features}", *SETTINGS, "protocol.recall_at=[1,3]") for part in ("--set", one)
    ]
    assert main(["train", "features", "c2-ccp", *options, "--seed", "1", "--out", str(interrupted), "--resume"]) == 0
    whole, changed = result(interrupted.parent / "whole"), result(interrupted)
    assert list(changed["test"].pop("recall_at")) == ["1", "3"]
    assert changed["test"]["map_at_r"] == pytest.approx(whole["test"]["map_at_r"], abs=1e-12)
    assert {key: changed[key] for key in ("validation", "best_step")} == {
        key: whole[key] for key in ("validation", "best_step")
    }
    capsys.readouterr()
    assert main(["evaluate", str(interrupted), "--set", "protocol.recall_at=[2]", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["recall_at"]) == ["2"]
    assert main(["evaluate", str(interrupted), "--set", "optim.lr=3"]) == 2
