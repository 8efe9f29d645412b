"""One frozen backbone through all commands: its features are computed once, and another one is refused."""

import json

import pytest
from safetensors.torch import load_file, save_file
from support.frozen_runs import QUICK, entries, save_resnet, trained

from ccp_dml.cli import main
from ccp_dml.runs.frozen import extract


def test_only_the_head_is_saved_and_it_scores_as_it_was_scored(frozen_settings, tmp_path, capsys):
    result, _ = trained(frozen_settings(), tmp_path / "run")
    assert set(load_file(tmp_path / "run" / "best.safetensors")) == {"linear.weight"}
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["map_at_r"] == result["test"]["map_at_r"]
    certificate = (tmp_path / "run" / "certificate.json").read_bytes()
    assert main(["certify", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "certificate.json").read_bytes() == certificate, "another network was certified"


def test_swapped_weights_neither_resume_nor_score_a_run(frozen_settings, frozen_weights, tmp_path, capsys):
    trained(frozen_settings(), tmp_path / "run")
    state = load_file(frozen_weights)
    save_file({name: value + 0.01 for name, value in state.items()}, frozen_weights)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()}
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "run" / "result.json").unlink()
    before.pop(tmp_path / "run" / "result.json")
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir()} == before


def test_weights_may_move_before_a_run_goes_on(frozen_settings, frozen_weights, tmp_path, capsys):
    run, moved = tmp_path / "run", tmp_path / "moved.safetensors"
    trained(frozen_settings(), run)
    frozen_weights.rename(moved)
    go_on = ["train", "--resume", "--out", str(run), "--set", "train.max_steps=16"]
    assert main(go_on) == 2
    assert str(frozen_weights) in capsys.readouterr().err
    assert main([*go_on, "--set", f"model.weights={moved}"]) == 0
    assert f'"{moved}"' in (run / "config.toml").read_text()


@pytest.fixture(params=["whole", "top"])
def learning_run(request, frozen_settings, frozen_weights, tmp_path):
    """Train a network whose backbone learns, all of it or its top; the run, and the file of its first weights."""
    own = ["model.freeze_backbone=false"]
    if request.param == "top":
        save_resnet(frozen_weights, seed=5)
        own += ["model.backbone=test_resnet", "model.train_from=layer3"]
    trained(frozen_settings(*own, "train.max_steps=4", "train.evaluate_every=2"), tmp_path / "run")
    return tmp_path / "run", frozen_weights


def test_first_weights_of_a_backbone_that_learns_may_move_but_not_change(learning_run, tmp_path, capsys):
    (run, weights), moved = learning_run, tmp_path / "moved.safetensors"
    settings, last = (run / "config.toml").read_text(), list(load_file(weights).items())[-1:]
    save_file({**load_file(weights), **{name: value + 1 for name, value in last}}, moved)
    go_on = ["train", "--resume", "--out", str(run), "--set", "train.max_steps=6", "--set", f"model.weights={moved}"]
    assert main(go_on) == 2
    assert "The pretrained weights are not those that" in " ".join(capsys.readouterr().err.split())
    assert (run / "config.toml").read_text() == settings
    weights.rename(moved)
    assert main(go_on) == 0
    assert f'"{moved}"' in (run / "config.toml").read_text()


def test_an_earlier_version_did_not_record_first_weights(learning_run, tmp_path, capsys):
    (run, weights), moved = learning_run, tmp_path / "moved.safetensors"
    environment = json.loads((run / "environment.json").read_text())
    del environment["first_weights"]
    (run / "environment.json").write_text(json.dumps(environment))
    (run / "checksums.json").unlink()
    weights.rename(moved)
    go_on = ["train", "--resume", "--out", str(run), "--set", "train.max_steps=6", "--set"]
    assert main([*go_on, f"model.weights={moved}"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "did not record its pretrained weights: training goes on from the checkpoint" in told
    for file in run.glob("checkpoint*"):
        file.unlink()
    moved.rename(weights)
    assert main([*go_on, f"model.weights={weights}"]) == 2
    assert "neither a checkpoint nor a record of what that file held" in " ".join(capsys.readouterr().err.split())


def test_a_benchmark_does_not_mix_two_backbones(image_folder, frozen_weights, tmp_path, capsys):
    arguments = benchmark_arguments(image_folder, frozen_weights, tmp_path)
    assert main([*arguments, "--methods", "c2"]) == 0
    state = load_file(frozen_weights)
    save_file({name: value + 0.01 for name, value in state.items()}, frozen_weights)
    capsys.readouterr()
    assert main([*arguments, "--methods", "c2,c2-ccp"]) == 2
    assert "backbone's weights are not those" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "bench" / "c2-ccp").exists()


def test_a_run_without_a_record_of_its_backbone(frozen_settings, tmp_path, capsys):
    trained(frozen_settings(), tmp_path / "run")
    (tmp_path / "run" / "environment.json").unlink()
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "environment.json cannot tell what the run began with" in " ".join(capsys.readouterr().err.split())


def test_scores_of_a_run_whose_cache_is_out_of_reach(frozen_settings, tmp_path, capsys):
    result, _ = trained(frozen_settings(), tmp_path / "run")
    (tmp_path / "cache").rename(tmp_path / "away")
    (tmp_path / "cache").write_text("in the way")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "set run.cache" in " ".join(capsys.readouterr().err.split())
    elsewhere = ["--set", f"run.cache={tmp_path / 'elsewhere'}", "--json"]
    assert main(["evaluate", str(tmp_path / "run"), *elsewhere]) == 0
    assert json.loads(capsys.readouterr().out)["map_at_r"] == result["test"]["map_at_r"]
    assert main(["certify", str(tmp_path / "run"), *elsewhere]) == 0
    assert sum(entry.suffix != ".lock" for entry in (tmp_path / "elsewhere").iterdir()) >= 2


def test_interrupted_while_features_are_computed(image_folder, frozen_weights, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    given = [*QUICK, f"data.root={image_folder}", f"model.weights={frozen_weights}", f"run.cache={tmp_path / 'cache'}"]
    options = [part for setting in given for part in ("--set", setting)]
    command = ["train", "folder", "c2-ccp", *options, "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patched:
        patched.setattr("ccp_dml.runs.frozen.extract", interrupted)
        assert main(command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert main(command) == 0


def benchmark_arguments(image_folder, frozen_weights, tmp_path):
    given = [*QUICK, f"data.root={image_folder}", f"model.weights={frozen_weights}", f"run.cache={tmp_path / 'cache'}"]
    options = [part for setting in (*given, "protocol.folds=2", "train.max_steps=4") for part in ("--set", setting)]
    return ["benchmark", "mlrc", "--data", "folder,frozen", *options, "--out", str(tmp_path / "bench"), "--json"]


def test_a_benchmark_computes_features_before_its_workers_start(
    image_folder, frozen_weights, tmp_path, capsys, monkeypatch
):
    seen_here = []

    def counted(config, network, part, *more):
        seen_here.append(len(part))
        return extract(config, network, part, *more)

    monkeypatch.setattr("ccp_dml.runs.frozen.extract", counted)
    arguments = benchmark_arguments(image_folder, frozen_weights, tmp_path)
    assert main([*arguments, "--methods", "c2,c2-ccp", "--workers", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in shown["table"]} == {"c2", "c2-ccp"}
    assert len(entries(tmp_path)) == 2, "one for training, one for the test"
    assert len(seen_here) == 2, "workers, which are other processes, computed features"
    assert len(list((tmp_path / "bench").rglob("result.json"))) == 4
