"""`ccp train --final RUN`: every class trains, as long and at the pace that the run has found."""

import json
from pathlib import Path

import pytest
import torch
from support.made_up_runs import write_run

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.start.final import final_settings, lengths_of_problems

QUICK = ("train.max_steps=12", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=6")


def options(features, *settings):
    return [part for setting in (f"data.path={features}", *QUICK, *settings) for part in ("--set", setting)]


def test_steps_and_pace_are_those_of_the_run(tmp_path):
    write_run(tmp_path / "run")
    found = final_settings(tmp_path / "run")
    best = RunFolder.read(tmp_path / "run").best_evaluation()["step"]
    assert f"train.max_steps={best}" in found
    assert "protocol.hold_out=nothing" in found
    assert "ccp.steps_per_problem=390" in found  # 1,950 steps, five problems
    assert "ccp.start_step=0" in found
    assert final_settings(write_run(tmp_path / "baseline", is_ccp=False))[-1].startswith("train.max_steps=")


@pytest.mark.parametrize(("rewind", "expected"), [(False, ([200], [200, 150])), (True, ([150], [50, 150]))])
def test_steps_that_rewinding_threw_away_do_not_count(rewind, expected):
    """200 steps without proxies, then problems from steps 200 and 400 on; the best evaluation is at step 550."""
    scores = [10, 20, 30, 25, 40, 30, 30, 30, 35, 30, 50]
    rows = [{"step": 50 * (n + 1), "problem": 1 + n // 4, "map_at_r": score} for n, score in enumerate(scores)]
    for n, radius in ((0, None), (4, 0.5), (8, 0.4)):
        rows[n]["problems_begun"] = [{"problem": 1 + n // 4, "step": 50 * n, "covering_radius": radius}]
    run = RunFolder(Path("run"), {"ccp": {"rewind": rewind, "until": "stall"}}, {}, rows, {"best_step": 550}, None)
    assert lengths_of_problems(run, rows[-1]) == expected


def test_an_unfinished_run_tells_nothing(tmp_path):
    with pytest.raises(UserError, match=r"is not finished.*--resume"):
        final_settings(write_run(tmp_path / "run", finished=False))


def test_every_class_trains_and_no_score_is_claimed(features, tmp_path, capsys):
    first, final = tmp_path / "run", tmp_path / "final"
    command = ["train", "features", "c2-ccp", *options(features, "ccp.patience=1")]
    assert main([*command, "--out", str(first)]) == 0
    assert main(["train", "features", "--final", str(first), "--out", str(final)]) == 0
    shown = capsys.readouterr()
    assert "learning from all 16 classes, so that no score can be measured" in " ".join(shown.err.split())
    assert "No score was measured" in shown.out
    assert f"ccp evaluate {first} --json" in " ".join(shown.out.split())
    assert f"ccp evaluate {final}" not in " ".join(shown.out.split())  # it would be refused
    before, result = (json.loads((folder / "result.json").read_text()) for folder in (first, final))
    assert (result["test"], result["validation"], result["raw"], result["start"]) == (None, None, None, None)
    assert f"train.max_steps={result['steps']}" in final_settings(first)
    assert result["best_step"] == result["steps"] <= before["best_step"]
    assert len(json.loads((final / "classes.json").read_text())["learned"]) == 16
    assert Logbook.reopen(final).config().protocol.hold_out == "nothing"
    assert "No score was measured." in (final / "report.html").read_text()
    weights, last = ccp.load(final).network.state_dict(), torch.load(final / "checkpoint.pt", weights_only=True)
    torch.testing.assert_close(weights["linear.weight"].cpu(), last["network"]["linear.weight"], rtol=0, atol=0)
    for refused in (["evaluate", str(final)], ["certify", str(final)], ["train", "--final", str(final)]):
        assert main(refused) == 2
    assert main(["export", str(final), "--out", str(tmp_path / "model")]) == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "No score was measured on this model: every class trained" in card
    assert main(["train", "features", "c1", "--final", str(first), "--out", str(tmp_path / "other")]) == 2
    assert "loss.name = 'c2', not 'c1'" in " ".join(capsys.readouterr().err.split())


def test_without_a_score_nothing_would_end_the_training(features, tmp_path, capsys):
    held = [
        "train",
        "features",
        "c2-ccp",
        *options(features, "protocol.hold_out=nothing"),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(held) == 2
    assert "set ccp.until=stale or steps" in " ".join(capsys.readouterr().err.split())
