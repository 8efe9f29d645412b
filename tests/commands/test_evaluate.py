import json

import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.functional.retrieval import retrieval_scores


def options(features, *settings):
    quick = ("train.max_steps=8", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=6")
    return [part for setting in (f"data.path={features}", *quick, *settings) for part in ("--set", setting)]


@pytest.fixture
def two_runs(features, tmp_path):
    runs = [tmp_path / "fold0", tmp_path / "fold1"]
    for fold, run in enumerate(runs):
        assert main(["train", "features", "c2", *options(features, f"protocol.fold={fold}"), "--out", str(run)]) == 0
    return runs


def printed(capsys):
    captured = capsys.readouterr()
    return json.loads(captured.out)


def test_evaluate_repeats_the_scores_of_the_run(two_runs, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(two_runs[0]), "--json"]) == 0
    scores = printed(capsys)
    recorded = json.loads((two_runs[0] / "result.json").read_text())["test"]
    assert {key: scores[key] for key in recorded} == recorded


def test_several_runs_are_separated_and_concatenated(two_runs, features, capsys):
    import numpy as np

    from ccp_dml.foundation.checkpoint import load_weights

    capsys.readouterr()
    assert main(["evaluate", *map(str, two_runs), "--json"]) == 0
    scores = printed(capsys)
    singles = [json.loads((run / "result.json").read_text())["test"]["map_at_r"] for run in two_runs]
    assert scores["separated"]["map_at_r"]["mean"] == pytest.approx(sum(singles) / 2)
    assert scores["separated"]["map_at_r"]["n"] == 2

    data = np.load(features)
    test = data["labels"] >= 8
    parts = []
    for run in two_runs:
        weights = load_weights(run / "best.safetensors")
        scaled = (torch.from_numpy(data["features"][test]) - weights["scaling.centre"]) / weights["scaling.scale"]
        vectors = scaled @ weights["linear.weight"].T
        parts.append(vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1))
    joined = torch.cat(parts, dim=1)
    joined = joined / joined.norm(dim=1, keepdim=True).clamp(min=1)
    expected = retrieval_scores(joined, torch.from_numpy(data["labels"][test]))
    assert scores["concatenated"]["map_at_r"] == pytest.approx(expected.map_at_r, abs=1e-6)


def test_evaluate_shows_a_table_to_people(two_runs, capsys):
    capsys.readouterr()
    assert main(["evaluate", *map(str, two_runs)]) == 0
    shown = capsys.readouterr().out
    assert "concatenated" in shown
    assert "separated" in shown


def test_report_compares_runs(two_runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["report", *map(str, two_runs), "--out", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "fold1" in shown  # the table
    assert str(page) in shown
    assert "fold0" in page.read_text()
    assert "fold1" in page.read_text()


def test_config_prints_toml_and_json_and_origins(capsys):
    import tomllib

    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25"]) == 0
    as_toml = tomllib.loads(capsys.readouterr().out)
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25", "--json"]) == 0
    as_json = printed(capsys)
    assert as_toml == as_json
    assert as_json["optim"]["lr"] == 0.25
    assert as_json["loss"] == {"name": "c2", "positive_margin": 0.5, "negative_margin": 1.2, "normalise": "clip"}
    assert main(["config", "features", "c2-ccp", "--set", "optim.lr=0.25", "--json", "--explain"]) == 0
    origins = printed(capsys)
    assert origins["optim.lr"] == {"value": 0.25, "origin": "--set optim.lr"}
    assert origins["ccp.mode"]["origin"] == "c2-ccp"
    assert origins["ccp.weight"]["origin"] == "default"


@pytest.mark.parametrize("kind", ["datasets", "losses", "methods", "backbones", "recipes"])
def test_list_names_everything(kind, capsys):
    assert main(["list", kind, "--json"]) == 0
    names = {entry["name"] for entry in printed(capsys)}
    wanted = {
        "datasets": {"glyphs", "folder", "csv", "features"},
        "losses": {"c1", "c2", "ms", "triplet"},
        "methods": {
            f"{loss}{end}" for loss in ("c1", "c2", "ms", "triplet") for end in ("", "-proxy", "-ccp", "-ccp-s")
        },
        "backbones": {"bn_inception", "resnet20v2", "resnet50"},
        "recipes": {"glyphs", "c2-ccp"},
    }[kind]
    assert wanted <= names


@pytest.mark.parametrize(
    "name", ["train", "config", "evaluate", "certify", "list", "report", "benchmark", "data prepare", "data verify"]
)
def test_every_command_has_help_with_an_example(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"ccp {name}" in shown
