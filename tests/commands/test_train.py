"""`ccp train` as a user calls it: what it leaves, the same twice, and interrupted in every way."""

import html
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.commands.train import free_folder, next_commands
from ccp_dml.config.layers import resolve
from ccp_dml.foundation.locks import alone_in
from ccp_dml.losses import ContrastiveLoss
from ccp_dml.records.logbook import Logbook

QUICK = (
    "train.max_steps=24",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "model.embedding_dim=6",
)


def command(features, method, out, *settings, seed=1):
    one_evaluation = ["ccp.patience=1"] if "ccp" in method and "ccp.until=steps" not in settings else []
    chosen = [f"data.path={features}", *QUICK, *one_evaluation, *settings]
    options = [part for setting in chosen for part in ("--set", setting)]
    return ["train", "features", method, *options, "--seed", str(seed), "--out", str(out)]


def log(folder):
    """The lines of metrics.jsonl, but for the seconds."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]


def result(folder):
    """result.json, but for what depends on the machine."""
    entries = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in entries.items() if key not in ("seconds", "peak_memory")}


@pytest.mark.parametrize("method", ["c2", "c2-proxy", "c2-ccp", "c1-ccp-s", "ms-ccp", "triplet-ccp", "c2-profs"])
def test_a_run_writes_what_the_contract_promises(features, tmp_path, method, capsys):
    run = tmp_path / "run"
    assert main(command(features, method, run)) == 0
    promised = "config.toml environment.json metrics.jsonl result.json best.safetensors checkpoint.pt report.html"
    assert {path.name for path in run.iterdir()} >= set(promised.split())
    rows = log(run)
    assert [row["step"] for row in rows] == [0, 4, 8, 12, 16, 20, 24]
    wanted = {"step", "problem", "map_at_r", "precision_at_1", "r_precision", "loss"}
    wanted |= {"gradient_norm", "active_positives", "active_negatives"}
    if method not in ("c2", "c2-profs"):
        wanted |= {"covering_radius", "staleness", "embedding_drift", "proxy_drift"}
    if "ccp" in method or "profs" in method:
        wanted |= {"pull_norm", "problems_begun"}
    start, *rows = rows
    assert all(wanted <= row.keys() for row in rows)
    assert start.keys() >= {"map_at_r", "precision_at_1", "r_precision"}
    assert (start["problem"], start["loss"]) == (0, None)
    outcome = result(run)
    assert outcome["start"]["map_at_r"] == start["map_at_r"]
    assert outcome["raw"]["network"] == "the vectors as they are"
    assert outcome["raw"]["queries"] == 64
    best = max(rows, key=lambda row: row["map_at_r"])
    assert outcome["validation"]["map_at_r"] == best["map_at_r"]
    assert outcome["best_step"] == best["step"]
    assert outcome["steps"] == 24
    assert outcome["seed"] == 1
    assert outcome["test"]["queries"] == 64
    assert 0 < outcome["test"]["map_at_r"] <= 1
    assert outcome["problems"] == rows[-1]["problem"]
    shown = capsys.readouterr().out
    assert "report.html" in shown
    assert "the vectors as they are" in shown
    assert "P@1" in shown.partition("Training ")[2]
    assert "Next:" in shown


def test_ccp_solves_several_problems_and_pulls_from_the_second_on(features, tmp_path):
    assert main(command(features, "c2-ccp", tmp_path / "run", "train.max_steps=80", "ccp.weight=0.5")) == 0
    rows = log(tmp_path / "run")[1:]
    assert rows[-1]["problem"] > 2
    assert all(row["pull_norm"] == 0 for row in rows if row["problem"] == 1)
    assert all(row["pull_norm"] > 0 for row in rows if row["problem"] > 1)


def test_profs_changes_representatives_after_each_pass_and_pulls_from_the_second_problem_on(features, tmp_path, capsys):
    assert main(command(features, "c2-profs", tmp_path / "run", "train.images_per_class=2")) == 0
    rows = log(tmp_path / "run")[1:]
    assert [start["step"] for row in rows for start in row["problems_begun"]] == [0, 6, 12, 18]  # 48 images, 8 a batch
    assert [row["pull_norm"] > 0 for row in rows] == [row["step"] > 6 for row in rows]
    assert "C2 with PROFS, 1 representative per class" in " ".join(capsys.readouterr().err.split())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Pull" in page
    assert "Covering radius" not in page


def test_scoring_the_start_does_not_change_the_training_by_a_bit(features, tmp_path, monkeypatch):
    settings = ("model.hidden_dim=8", "train.max_steps=12")
    assert main(command(features, "c2-ccp", tmp_path / "scored", *settings)) == 0
    monkeypatch.setattr("ccp_dml.runs.assembly.TrainingRun.record_start", lambda _: None)
    assert main(command(features, "c2-ccp", tmp_path / "not-scored", *settings)) == 0
    assert log(tmp_path / "scored")[1:] == log(tmp_path / "not-scored")
    scored, without = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("scored", "not-scored")
    )
    torch.testing.assert_close(scored["network"], without["network"], rtol=0, atol=0)
    torch.testing.assert_close(scored["random"], without["random"], rtol=0, atol=0)


def test_harm_is_said_in_words(features, tmp_path, capsys):
    settings = ("optim.lr=3", "model.head_init=xavier", "model.embedding_dim=1")
    assert main(command(features, "c2", tmp_path / "run", *settings)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Training did harm: P@1" in shown
    assert "less than the vectors as they are" in shown
    assert "Training did harm" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("c2-ccp --set data.root=photos", "for example: ccp train folder frozen c2-ccp --set data.root=photos"),
        ("glyphs c2-ccp --set data.root=photos", "the data set glyphs does not read it; the recipes folder"),
        ("glyphs c1 c2-ccp", "c1 and c2-ccp are 2 methods"),
        ("frozen glyphs c2", "write glyphs frozen c2"),
    ],
)
def test_never_the_wrong_thing_silently(tmp_path, capsys, arguments, words):
    assert main(["train", *arguments.split(), "--out", str(tmp_path / "run")]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_folder_whose_name_is_no_text_is_refused_before_the_training(features, tmp_path, capsys):
    """The training went on to its end, where its map could not be read."""
    folder = tmp_path / "br\udce4"
    assert main(command(features, "c2", folder, "train.max_steps=1")) == 2
    assert r"br\udce4' holds bytes that are not text in UTF-8; give another folder" in capsys.readouterr().err
    assert not folder.exists()


def test_train_alone_shows_help(capsys):
    assert main(["train"]) in (0, 2)
    shown = capsys.readouterr()
    assert "Usage" in shown.out + shown.err


def test_a_run_announces_itself_and_a_missing_method(features, tmp_path, capsys):
    assert main(command(features, "c2", tmp_path / "run")) == 0
    assert "learning from 6 classes, validating on 2, testing on 8" in " ".join(capsys.readouterr().err.split())
    assert "learning from 6 classes" in (tmp_path / "run" / "report.html").read_text()
    options = [part for setting in (f"data.path={features}", *QUICK) for part in ("--set", setting)]
    assert main(["train", "features", *options, "--out", str(tmp_path / "other")]) == 0
    assert "No method is named: the loss c2 trains by itself" in " ".join(capsys.readouterr().err.split())


def test_advice_is_told_once_and_stands_on_the_page(features, tmp_path, capsys):
    settings = ("train.max_steps=16", "train.evaluate_every=2", "optim.lr=1e-9")
    assert main(command(features, "c2", tmp_path / "run", *settings)) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("Advice: MAP@R has not moved since step 0") == 1
    assert told.count("Advice: Only 2 classes validate") == 1
    page = (tmp_path / "run" / "report.html").read_text()
    assert "advice-unmoved" in page
    assert "advice-few-validation-classes" in page


def test_small_data_get_folds_and_batches_that_fit(image_folder, tmp_path, capsys):
    settings = ["model.backbone=small_cnn", "data.resize=36", "data.crop=32", "train.max_steps=2", "run.workers=0"]
    options = [
        part for setting in (f"data.root={image_folder}", "data.classes=5", *settings) for part in ("--set", setting)
    ]
    command = ["train", "folder", "c2", *options, "--out", str(tmp_path / "run")]
    assert main(command) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert (
        "Fitted to 5 training classes: protocol.folds=2, train.classes_per_batch=3, train.images_per_class=11." in told
    )
    config = Logbook.reopen(tmp_path / "run").config()
    assert (config.protocol.folds, config.train.classes_per_batch, config.train.images_per_class) == (2, 3, 11)
    assert main([*command, "--set", "train.max_steps=3", "--resume"]) == 0
    assert main([*command[:-2], "--set", "protocol.folds=4", "--out", str(tmp_path / "other")]) == 2
    assert "too few for protocol.folds=4" in capsys.readouterr().err


def test_commands_to_type_next_can_be_typed_for_folders_with_spaces():
    lines = next_commands(Path("my runs/first"), resolve(["glyphs", "c2"]).config.as_tables())
    assert sum("'my runs/first'" in line for line in lines) == 4
    assert not any("my runs" in line.replace("'my runs/first'", "") for line in lines)


def test_a_run_without_out_takes_the_first_free_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert free_folder(["glyphs", "c2"]) == Path("runs/glyphs-c2")
    Path("runs/glyphs-c2").mkdir(parents=True)
    assert free_folder(["glyphs", "c2"]) == Path("runs/glyphs-c2-2")


@pytest.mark.parametrize("setting", ["data.test_share=0", "protocol.hold_out=nothing"])
def test_a_run_without_test_classes_is_not_sent_to_evaluate(setting):
    def offered(*settings):
        tables = resolve(["folder", "scratch", "c2"], ["data.root=photos", *settings]).config.as_tables()
        return any(line.startswith("ccp evaluate") for line in next_commands(Path("run"), tables))

    assert offered()
    assert not offered(setting)


def test_training_helps(features, tmp_path):
    assert (
        main(
            command(features, "c2", tmp_path / "run", "train.max_steps=400", "optim.lr=1e-2", "model.head_init=xavier")
        )
        == 0
    )
    rows = log(tmp_path / "run")
    assert max(row["map_at_r"] for row in rows) > rows[0]["map_at_r"] + 0.05


@pytest.mark.parametrize("method", ["c2", "ms-ccp"])
def test_the_same_seed_gives_the_same_log_and_another_seed_another(features, tmp_path, method):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main(command(features, method, tmp_path / name, seed=seed)) == 0
    assert log(tmp_path / "a") == log(tmp_path / "b")
    assert result(tmp_path / "a") == result(tmp_path / "b")
    assert (tmp_path / "a" / "best.safetensors").read_bytes() == (tmp_path / "b" / "best.safetensors").read_bytes()
    assert log(tmp_path / "a") != log(tmp_path / "c")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("c2-ccp", ()),
        ("c2-ccp", ("ccp.rewind=true", "ccp.reset_moments=true", "ccp.space=normalised", "ccp.proxy_length=unit")),
        ("c2-ccp", ("ccp.until=steps", "ccp.steps_per_problem=3")),
        ("c2-ccp", ("ccp.until=stale", "ccp.staleness=0.02", "ccp.check_every=1", "ccp.proxies_per_class=2")),
        ("c2-profs", ("ccp.steps_per_problem=6", "ccp.weight=0.5")),
    ],
)
def test_interrupted_and_resumed_is_as_if_nothing_happened(features, tmp_path, monkeypatch, method, settings):
    settings = ("train.max_steps=48", *settings)
    assert main(command(features, method, tmp_path / "whole", *settings)) == 0

    record, calls = Logbook.record, []

    def interrupted_record(self, row):
        record(self, row)
        calls.append(row["step"])
        if len(calls) in (1, 4, 5, 9):  # the line is written, the checkpoint is not
            raise KeyboardInterrupt

    monkeypatch.setattr(Logbook, "record", interrupted_record)
    assert main(command(features, method, tmp_path / "parts", *settings)) == 130
    for _ in range(3):
        assert main(["train", "--resume", "--out", str(tmp_path / "parts")]) == 130
    assert main(["train", "--resume", "--out", str(tmp_path / "parts")]) == 0
    assert log(tmp_path / "parts") == log(tmp_path / "whole")
    assert result(tmp_path / "parts") == result(tmp_path / "whole")
    whole, parts = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("whole", "parts"))
    torch.testing.assert_close(parts["network"], whole["network"], rtol=0, atol=0)
    torch.testing.assert_close(parts["trainer"]["optimizer"], whole["trainer"]["optimizer"], rtol=0, atol=0)


def test_killed_for_real_and_resumed(features, tmp_path):
    """SIGKILL at an arbitrary moment of the real program."""
    settings = ("train.max_steps=400", "train.evaluate_every=2")
    assert main(command(features, "c2-ccp", tmp_path / "whole", *settings)) == 0
    program = [sys.executable, "-c", "from ccp_dml.cli import run; run()"]
    process = subprocess.Popen(
        [*program, *command(features, "c2-ccp", tmp_path / "killed", *settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    assert main(["train", "--resume", "--out", str(tmp_path / "killed")]) == 0
    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


def test_a_longer_run_may_be_asked_for_when_resuming_but_nothing_else(features, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(features, "c2", run)) == 0
    assert main([*command(features, "c2", run, "train.max_steps=40"), "--resume"]) == 0
    assert log(run)[-1]["step"] == 40
    assert main([*command(features, "c2", run, "optim.lr=0.5"), "--resume"]) == 2
    assert "optim.lr" in capsys.readouterr().err


def test_a_run_goes_on_with_other_settings_without_its_recipes(features, tmp_path, capsys):
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(command(features, "c2", whole, "train.max_steps=32")) == 0
    assert main(command(features, "c2", run)) == 0
    go_on = ["train", "--resume", "--out", str(run)]
    for _ in range(2):  # as after an interruption
        assert main([*go_on, "--set", "train.max_steps=32", "--seed", "1"]) == 0
    assert result(run) == result(whole)
    assert tomllib.loads((run / "config.toml").read_text())["train"]["max_steps"] == 32
    assert json.loads((run / "environment.json").read_text())["command"].endswith(
        " --set train.max_steps=32 --set run.seed=1"
    )
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for options, words in {
        "--set optim.lr=0.5": "was started with optim.lr = 0.001, not 0.5",
        "--seed 2": "was started with run.seed = 1, not 2",
        "--set data.root=x": "--set data.root would have no effect",
        "--set train.max_step=9": "did you mean 'train.max_steps'",
    }.items():
        capsys.readouterr()
        assert main([*go_on, *options.split()]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    assert before == {path: path.read_bytes() for path in run.iterdir() if path.is_file()}


def test_data_may_move_before_a_run_goes_on_but_not_change(features, tmp_path, capsys):
    run, moved = tmp_path / "run", tmp_path / "moved.npz"
    assert main(command(features, "c2", run)) == 0
    features.rename(moved)
    assert main([*command(moved, "c2", run, "train.max_steps=32"), "--resume"]) == 0
    assert log(run)[-1]["step"] == 32
    assert tomllib.loads((run / "config.toml").read_text())["data"]["path"] == str(moved)
    arrays = dict(np.load(moved))
    np.savez(moved, **{**arrays, "features": arrays["features"] + 1})
    assert main([*command(moved, "c2", run, "train.max_steps=40"), "--resume"]) == 2
    assert "The data (classes, labels or features) are not those" in " ".join(capsys.readouterr().err.split())


def test_the_page_of_a_longer_run_shows_the_command_that_asked_for_it(features, tmp_path, monkeypatch):
    run = tmp_path / "run"
    for steps, resume in ((8, []), (16, ["--resume"]), (16, None)):
        asked = command(features, "c2", run, f"train.max_steps={steps}")
        arguments = ["train", "--resume", "--out", str(run)] if resume is None else [*asked, *resume]
        monkeypatch.setattr(sys, "argv", ["ccp", *arguments])
        assert main(arguments) == 0
        recorded = shlex.join(["ccp", *asked])
        assert json.loads((run / "environment.json").read_text())["command"] == recorded
        assert html.escape(recorded) in (run / "report.html").read_text()


def test_a_run_that_ended_within_a_window_can_be_made_a_little_longer(features, tmp_path):
    run = tmp_path / "run"
    assert main(command(features, "c2", run, "train.max_steps=10")) == 0
    assert main([*command(features, "c2", run, "train.max_steps=12"), "--resume"]) == 0
    assert [row["step"] for row in log(run)] == [0, 4, 8, 10, 12]
    assert result(run)["steps"] == 12


def test_resuming_a_finished_run_shows_its_result(features, tmp_path, capsys):
    assert main(command(features, "c2", tmp_path / "run")) == 0
    before = (tmp_path / "run" / "result.json").read_bytes()
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
    assert "finished already" in capsys.readouterr().err
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_an_extension_that_is_broken_off_does_not_look_finished(features, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(command(features, "c2", whole, "train.max_steps=32")) == 0
    assert main(command(features, "c2", run)) == 0
    with monkeypatch.context() as patched:
        patched.setattr("ccp_dml.trainer.Trainer.train_until_evaluation", interrupted)
        assert main([*command(features, "c2", run, "train.max_steps=32"), "--resume"]) == 130
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert result(run) == result(whole)


def test_a_killed_command_says_how_to_go_on(features, tmp_path, monkeypatch, capsys):
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("ccp_dml.trainer.Trainer.take_step", lambda _: os.kill(os.getpid(), signal.SIGTERM))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that a command that does not mind it goes on and fails
            assert main(command(features, "c2", tmp_path / "run")) == 130
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "ccp train --resume --out" in " ".join(capsys.readouterr().err.split())


def test_two_processes_do_not_train_one_run(features, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ccp_dml.commands.train.SECONDS_FOR_LOADERS", 0.0)
    with alone_in(tmp_path / "run"):
        assert main(command(features, "c2", tmp_path / "run")) == 2
    assert "being trained by another process" in " ".join(capsys.readouterr().err.split())
    assert main(command(features, "c2", tmp_path / "run")) == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "the lock was left behind"


def test_nothing_is_learned_from_the_test_half(features, tmp_path):
    """Other test vectors, same training: the network may not change by a bit."""
    data = dict(np.load(features))
    data["features"][data["labels"] >= 8] = 0.5
    other = tmp_path / "other.npz"
    np.savez(other, **data)
    assert main(command(features, "c2-ccp", tmp_path / "a")) == 0
    assert main(command(other, "c2-ccp", tmp_path / "b")) == 0
    assert log(tmp_path / "a") == log(tmp_path / "b")
    assert (tmp_path / "a" / "best.safetensors").read_bytes() == (tmp_path / "b" / "best.safetensors").read_bytes()
    assert result(tmp_path / "a")["test"] != result(tmp_path / "b")["test"]


def test_images_from_a_folder_train_too(image_folder, tmp_path):
    settings = [
        f"data.root={image_folder}",
        "ccp.patience=1",
        "model.backbone=resnet20v2",
        "data.resize=34",
        "data.crop=32",
        *QUICK,
        "run.workers=1",
    ]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "folder", "c2-ccp", *options, "--out", str(tmp_path / "run")]) == 0
    assert result(tmp_path / "run")["test"]["queries"] == 40


def test_a_mode_says_how_ones_own_images_are_trained_on(image_folder, tmp_path, capsys):
    settings = (f"data.root={image_folder}", "train.max_steps=2", "train.classes_per_batch=4", "run.workers=0")
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "folder", "c2-ccp", *options, "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    for mode in ("frozen", "top", "finetune", "scratch", "model.pretrained=true"):
        assert mode in told
    assert not (tmp_path / "run" / "config.toml").exists()
    assert main(["train", "folder", "scratch", "c2-ccp", *options, "--out", str(tmp_path / "run")]) == 0
    with (tmp_path / "run" / "config.toml").open("rb") as file:
        data = tomllib.load(file)["data"]
    assert (data["resize"], data["crop"], data["augment"]) == (36, 36, "light")
    assert main(["train", "folder", "scratch", "c2-ccp", *options, "--resume", "--out", str(tmp_path / "run")]) == 0


def test_bf16_runs_on_the_cpu(features, tmp_path):
    assert main(command(features, "ms-ccp", tmp_path / "run", "run.precision=bf16-mixed", "loss.beta=75.83")) == 0
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in log(tmp_path / "run")[1:])


def test_a_nan_loss_stops_with_the_step_and_spares_the_checkpoint(features, tmp_path, capsys, monkeypatch):
    forward, calls = ContrastiveLoss.forward, []

    def poisoned(self, *arguments):
        calls.append(1)
        loss = forward(self, *arguments)
        return loss * float("nan") if len(calls) == 10 else loss

    monkeypatch.setattr(ContrastiveLoss, "forward", poisoned)
    assert main(command(features, "c2", tmp_path / "run")) == 1
    message = capsys.readouterr().err
    assert "Step 10: the loss is not finite" in message
    assert "Try a smaller optim.lr" in message
    assert "Continue with" not in message, "the same settings come to the same step"
    assert "Traceback" not in message
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["trainer"]["step"] == 8
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0


def test_a_folder_with_a_result_is_complete(features, tmp_path, monkeypatch):
    def killed(book, result):  # noqa: ARG001
        raise KeyboardInterrupt

    with monkeypatch.context() as end:
        end.setattr(Logbook, "finish", killed)
        assert main(command(features, "c2", tmp_path / "run")) == 130
    page = (tmp_path / "run" / "report.html").read_text()
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
    score = f"{100 * result(tmp_path / 'run')['test']['map_at_r']:.1f}"
    assert score in page, "the report was written without the result"


def test_a_run_killed_before_it_began_can_be_started_again(features, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as early:
        early.setattr("ccp_dml.records.logbook.tomli_w.dumps", killed)
        assert main(command(features, "c2", tmp_path / "run")) == 130
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["environment.json"]
    assert main(command(features, "c2", tmp_path / "run")) == 0


def test_training_on_mnist_validates_on_held_out_images(tmp_path):
    """Ten digits are too few to hold classes out; a twelfth of each digit's 24 images is held out instead."""
    for split, count in (("train", 240), ("t10k", 40)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
            (tmp_path / f"{split}-{name}-ubyte").write_bytes(header + array.tobytes())
    settings = [f"data.root={tmp_path}", "train.max_steps=1", "train.images_per_class=2"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "mnist", "c2", *options, "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["validation"]["queries"] == 20
    assert result["test"]["queries"] == 40


def test_several_processes_are_started_with_the_same_command(features, tmp_path, monkeypatch):
    """What torchrun would start; tests/integration/test_several_processes.py really starts it."""
    started = []

    def run_together(module, arguments, processes, max_restarts):
        started.append((module, arguments, processes, max_restarts))
        return 2

    monkeypatch.setattr("ccp_dml.foundation.launcher.run_together", run_together)
    typed = ["features", "c2", "--set", f"data.path={features}", "--out", str(tmp_path / "run"), "--seed", "3"]
    assert main(["train", *typed, "--processes", "2", "--max-restarts", "1"]) == 2, "the exit code is the processes'"
    assert started == [("ccp_dml", ["train", *typed], 2, 1)]
    assert not (tmp_path / "run").exists()


def test_options_of_several_processes_that_do_not_fit_are_refused(features, tmp_path, monkeypatch, capsys):
    typed = ["train", "features", "c2", "--set", f"data.path={features}"]
    assert main([*typed, "--out", str(tmp_path / "run"), "--max-restarts", "1"]) == 2
    assert "--max-restarts needs --processes" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(typed) == 2
    assert "Several processes need --out DIR" in capsys.readouterr().err
