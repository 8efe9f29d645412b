"""`ccp evaluate` as a user calls it: scores of one run, of several, and of a backbone as it is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.foundation.checkpoint import load_weights
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.runs import scoring
from ccp_dml.runs.datasets import build_data


def test_evaluate_repeats_the_scores_of_the_run(trained_runs, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(trained_runs[0]), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    recorded = json.loads((trained_runs[0] / "result.json").read_text())["test"]
    assert {key: scores[key] for key in recorded} == recorded


def test_several_runs_are_separated_and_concatenated(trained_runs, features, capsys):
    capsys.readouterr()
    assert main(["evaluate", *map(str, trained_runs), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    singles = [json.loads((run / "result.json").read_text())["test"]["map_at_r"] for run in trained_runs]
    assert scores["separated"]["map_at_r"]["mean"] == pytest.approx(sum(singles) / 2)
    assert scores["separated"]["map_at_r"]["n"] == 2

    data = np.load(features)
    test = data["labels"] >= 8
    parts = []
    for run in trained_runs:
        weights = load_weights(run / "best.safetensors")
        scaled = (torch.from_numpy(data["features"][test]) - weights["scaling.centre"]) / weights["scaling.scale"]
        vectors = scaled @ weights["linear.weight"].T
        parts.append(vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1))
    joined = torch.cat(parts, dim=1)
    joined = joined / joined.norm(dim=1, keepdim=True).clamp(min=1)
    expected = retrieval_scores(joined, torch.from_numpy(data["labels"][test]))
    assert scores["concatenated"]["map_at_r"] == pytest.approx(expected.map_at_r, abs=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_scores_on_incomplete_data_are_marked(trained_runs, capsys, monkeypatch, count):
    short = "not CUB-200-2011 as published: test has 5,921 images of 100 classes instead of 5,924 of 100"
    monkeypatch.setattr(scoring, "build_data", lambda data: replace(build_data(data), incomplete=(short,)))
    runs = [str(run) for run in trained_runs[:count]]
    capsys.readouterr()
    assert main(["evaluate", *runs]) == 0
    assert f"Incomplete data: {short}." in " ".join(capsys.readouterr().out.split())
    assert main(["evaluate", *runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["incomplete"] == [short]


def test_the_score_of_a_backbone_on_incomplete_data_is_marked(features, capsys, monkeypatch):
    monkeypatch.setattr(scoring, "build_data", lambda data: replace(build_data(data), incomplete=("3 images short",)))
    assert main(["evaluate", "--raw", "features", "--set", f"data.path={features}"]) == 0
    assert "Incomplete data: 3 images short." in capsys.readouterr().out


def test_settings_that_a_backbone_s_data_do_not_read_are_refused(features, capsys):
    settings = ("--set", f"data.path={features}", "--set", "data.duplicates=refuse")
    refused(capsys, ["--raw", "features", *settings], "--set data.duplicates would have no effect")


def test_evaluate_shows_a_table_to_people(trained_runs, capsys):
    capsys.readouterr()
    assert main(["evaluate", *map(str, trained_runs)]) == 0
    shown = capsys.readouterr().out
    assert "concatenated" in shown
    assert "separated" in shown


def refused(capsys, arguments, *words):
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    for word in words:
        assert word in error, f"{word!r} is not in {error!r}"


def test_a_run_is_scored_where_its_data_have_moved_to(trained_runs, features, tmp_path, capsys):
    run, moved = trained_runs[0], tmp_path / "moved.npz"
    recorded = json.loads((run / "result.json").read_text())["test"]
    features.rename(moved)
    refused(capsys, [run], "features.npz")
    assert main(["evaluate", str(run), "--set", f"data.path={moved}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["map_at_r"] == recorded["map_at_r"]
    refused(capsys, [run, "--set", "model.embedding_dim=5"], "only where files are, how to compute and what to score")


def test_untrained_weights_are_no_score_to_beat(image_folder, capsys):
    settings = ("--set", f"data.root={image_folder}", "--set", "model.backbone=resnet18")
    refused(capsys, ["--raw", "folder", *settings], "random weights", "model.weights")


def test_settings_do_not_make_a_run_of_a_folder(tmp_path, capsys):
    refused(capsys, [tmp_path, "--set", "data.resize=24"], "holds no run")
