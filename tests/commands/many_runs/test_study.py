"""`ccp study` as a user calls it."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

from ccp_dml.cli import main
from ccp_dml.plans import rehearsal
from ccp_dml.plans.messages import Evaluated, Share, Stopped
from ccp_dml.plans.runner import LocalRunner
from ccp_dml.plans.worker import attempt
from ccp_dml.runs.datasets import build_data

QUICK = ("train.evaluate_every=4", "train.classes_per_batch=3", "model.embedding_dim=4", "protocol.folds=2")
PATIENT_SECONDS = 240  # machines may be busy; only a hang reaches this


def study(name, features, out, *more, steps=12):
    settings = (f"data.path={features}", f"train.max_steps={steps}", *QUICK)
    options = [part for setting in settings for part in ("--set", setting)]
    return ["study", name, "--data", "features", "--out", str(out), *options, *more]


def rows(folder):
    with (folder / "results.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


class Supervised:
    """The worker's end of a connection whose other end is in the same process."""

    def __init__(self, run, watcher):
        self.run, self.watcher, self.goes_on = run, watcher, None

    def send(self, message):
        if isinstance(message, Evaluated):
            self.goes_on = self.watcher.goes_on(self.run, message.step, message.score)

    def recv(self):
        return self.goes_on


def train_here(self, source, most, watcher):  # noqa: ARG001
    """What the runner does, without worker processes, whose start takes seconds each."""
    for run in source:
        watcher.started(run)
        outcome = attempt(run, Share(1, 1, None), build_data, Supervised(run, watcher))
        if isinstance(outcome, Stopped):
            watcher.stopped(run)
        else:
            watcher.finished(run, outcome.result)
    return []


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENT_SECONDS)
def test_an_interrupted_search_goes_on_to_the_same_end(features, tmp_path, capfd, monkeypatch):
    """Real workers, which ask after every evaluation whether to go on, against one process."""
    more = ("--trials", "4", "--set", "study.startup_trials=2", "--set", "train.patience=1000")
    command = study("search", features, tmp_path / "broken", *more, steps=24)
    process = subprocess.Popen(
        [sys.executable, "-c", "from ccp_dml.cli import run; run()", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + PATIENT_SECONDS
    while not (tmp_path / "broken" / "trials" / "0001" / "metrics.jsonl").is_file():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    assert "the same command continues it" in process.communicate(timeout=PATIENT_SECONDS)[1]
    assert process.returncode == 130
    assert main(command) == 0
    assert main([*command, "--plan"]) == 0
    assert "0 of 4 trials are left" in " ".join(capfd.readouterr().out.split())
    with monkeypatch.context() as patch:
        patch.setattr(LocalRunner, "train", train_here)
        assert main(study("search", features, tmp_path / "whole", *more, steps=24)) == 0
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert len(rows(tmp_path / "whole")) == 4
    for row in rows(tmp_path / "whole"):
        assert (row["state"], (tmp_path / "whole" / row["folder"] / "result.json").is_file()) in [
            ("complete", True),
            ("pruned", False),
        ]
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {"study.toml", "study.html", "summary.md", "results.csv", "best.toml", "map.png", "trials.db"} <= names


def test_a_plan_trains_and_writes_nothing(features, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(study("pool", features, out, "--plan", "--json", "--repeats", "2")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["runs"]) == 18
    assert shown["runs"][0]["proxies"] == 1
    assert shown["totals"]["steps_left"] == 18 * 12
    assert main(study("search", features, out, "--plan", "--json", "--trials", "7")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "7 of 7 trials are left" in shown["note"]
    assert (shown["runs"], shown["totals"]["open"], shown["totals"]["steps_left"]) == ([], 7, 7 * 12)
    assert shown["totals"]["seconds_left"] > 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("pools", (), "There is no study 'pools'; did you mean 'pool'"),
        ("pool", ("--data", "featurs"), "no data set 'featurs'"),
        ("pool", ("--loss", "c3"), "no loss 'c3' with CCP"),
        ("pool", ("--loss", "c2,c2"), "more than once"),
        ("pool", ("--trials", "3"), "--trials: the study pool has none"),
        ("search", ("--repeats", "2"), "--repeats: the study search tries each point once"),
        ("search", ("--set", "protocol.select_on=test"), "chooses on validation classes only"),
        ("mnist", ("--set", "run.map_points=5"), "run.map_points = 5"),
        ("pool", ("--storage", "x.db"), "--storage: the study pool keeps no trials"),
        ("pool", ("--set", "optim.learning_rate=1"), "optim.learning_rate"),
        ("pool", ("--set", "data.path=missing.npz"), "missing.npz"),
        ("search", ("--trials", "0"), "--trials"),
        ("search", ("--loss", "c2,ms"), "one loss at a time"),
        ("search", ("--storage", "/nowhere/at/all/x.log"), "--storage /nowhere/at/all/x.log cannot be used"),
        ("search", ("--storage", "sqlite:////nowhere/at/all/x.db"), "--storage sqlite:////nowhere/at/all/x.db cannot"),
    ],
)
def test_mistakes_end_with_code_2_before_anything_is_written(features, tmp_path, capfd, name, more, message):
    assert main(study(name, features, tmp_path / "out", *more)) == 2
    told = capfd.readouterr().err
    assert message in " ".join(told.split())
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("in_this_process")
def test_fewer_repeats_and_a_command_meanwhile_lose_no_result(features, tmp_path, monkeypatch):
    out, check = tmp_path / "out", rehearsal.rehearse

    def rehearse(*arguments):
        """Another command begins and ends while this one checks its runs."""
        monkeypatch.setattr(rehearsal, "rehearse", check)
        assert main(study("alternating", features, out, "--repeats", "2", steps=4)) == 0
        return check(*arguments)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    assert main(study("alternating", features, out, steps=4)) == 0
    assert len(rows(out)) == 6
    assert main(study("alternating", features, out, "--repeats", "1", steps=4)) == 0
    assert len(rows(out)) == 6
    assert "study.repeats=2" in tomllib.loads((out / "study.toml").read_text())["settings"]


@pytest.mark.usefixtures("in_this_process")
def test_a_plan_is_refused_where_the_data_have_changed(features, tmp_path, capfd):
    assert main(study("alternating", features, tmp_path / "out", steps=4)) == 0
    arrays = dict(np.load(features))
    np.savez(features, **{name: np.concatenate([rows[:-2], rows[:-3:-1]]) for name, rows in arrays.items()})
    assert main(study("alternating", features, tmp_path / "out", "--plan", steps=4)) == 0, "nothing is left to train"
    capfd.readouterr()
    assert main(study("alternating", features, tmp_path / "out", "--repeats", "2", "--plan", steps=4)) == 2
    assert "The data (classes, labels or features) are not those" in " ".join(capfd.readouterr().err.split())


@pytest.mark.usefixtures("in_this_process")
def test_a_study_goes_on_where_its_data_have_moved_to(features, tmp_path):
    assert main(study("alternating", features, tmp_path / "out", steps=4)) == 0
    moved = features.rename(tmp_path / "moved.npz")
    assert main(study("alternating", moved, tmp_path / "out", "--repeats", "2", steps=4)) == 0
    assert len(rows(tmp_path / "out")) == 6


@pytest.mark.usefixtures("in_this_process")
def test_a_study_says_that_its_runs_were_over_before_their_method_began(features, tmp_path):
    late = ("--set", "ccp.start_step=50")
    assert main(study("alternating", features, tmp_path / "out", *late, steps=4)) == 0
    assert "ends the training before the first proxies" in (tmp_path / "out" / "summary.md").read_text()


def test_the_folder_of_another_study_is_refused(features, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.toml").write_text('study = "pool"\ndata = "features"\nlosses = ["c2"]\nfull = false\n')
    assert main(study("alternating", features, tmp_path / "out")) == 2
    assert "holds a study with study = pool, not alternating" in " ".join(capsys.readouterr().err.split())


def test_studies_are_listed(capsys):
    assert main(["list", "studies", "--json"]) == 0
    listed = {entry["name"]: entry["description"] for entry in json.loads(capsys.readouterr().out)}
    assert {"alternating", "pool", "batch-size", "search"} <= set(listed)
    assert all(len(text) > 20 for text in listed.values())


def test_classes_that_trained_are_not_called_unseen(features, tmp_path, capsys):
    """The file's own split puts images of every class into both halves."""
    found = dict(np.load(features))
    np.savez(features, **found, split=np.where(np.arange(len(found["labels"])) % 2 == 0, "train", "test"))
    fewest = ("--set", "study.proxies_per_class=[2]", "--set", "study.pool_per_class=[2]")
    assert main(study("pool", features, tmp_path / "out", *fewest, "--json", steps=4)) == 0
    assert any("Some of the test classes also trained" in note for note in json.loads(capsys.readouterr().out)["notes"])


@pytest.mark.usefixtures("in_this_process")
def test_page_and_pictures_say_that_the_test_classes_selected(features, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("ccp_dml.reports.study.write_study_report", lambda _, report: written.append(report))
    settings = [f"data.path={features}", "train.max_steps=8", "protocol.select_on=test", *QUICK]
    settings.remove("protocol.folds=2")  # no training class validates
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["study", "alternating", "--data", "features", "--out", str(tmp_path / "out"), *options]) == 0
    (report,) = written
    assert any("protocol.select_on = 'test'" in note for note in report.notes)
    assert {figure.note for figure in report.figures} == {"selected on the test classes themselves"}
    figures = {figure.name: figure for figure in report.figures}
    assert figures["scores"].panels[0].title == "Selected on test classes"
    assert figures["curves"].panels[0].y_label == "MAP@R on test classes (%)"
