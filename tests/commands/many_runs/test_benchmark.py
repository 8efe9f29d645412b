"""`ccp benchmark` as a user calls it, killed and interrupted included."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ccp_dml.benchmark import page
from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import lock
from ccp_dml.plans import rehearsal

QUICK = (
    "train.max_steps=120",
    "train.evaluate_every=4",
    "train.classes_per_batch=3",
    "model.embedding_dim=4",
    "protocol.folds=2",
    "ccp.patience=1",
)
PATIENT_SECONDS = 240  # machines may be busy; only a hang reaches this


def benchmark(features, out, methods="c2,c2-ccp", *more, protocol="mlrc", settings=()):
    chosen = [f"data.path={features}", *QUICK, *settings]
    options = [part for setting in chosen for part in ("--set", setting)]
    return [
        *("benchmark", protocol, "--data", "features", "--methods", methods, "--out", str(out)),
        *options,
        *more,
    ]


def rows(folder):
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


def log(run):
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in entry.items() if not key.endswith("seconds")} for entry in entries]


@pytest.fixture
def exploding(tmp_path):
    file = tmp_path / "exploding.toml"
    file.write_text('[loss]\nname = "c2"\n[optim]\nlr = 3e37\n')
    return file


def start(arguments):
    """The real command in a process group of its own, as a terminal would start it."""
    command = [sys.executable, "-c", "from ccp_dml.cli import run; run()", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # a job in the background ignores it
    )


def wait_for(happened, process=None):
    deadline = time.monotonic() + PATIENT_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "nothing happened"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.005)


def evaluations(folder):
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*/*/*/metrics.jsonl"))


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc")
@pytest.mark.timeout(3 * PATIENT_SECONDS)
def test_a_killed_and_an_interrupted_benchmark_end_as_an_undisturbed_one(
    features, tmp_path, exploding, in_this_process, capfd
):
    methods = f"c2,{exploding},c2-ccp"
    assert main(benchmark(features, tmp_path / "whole", methods)) == 1  # two of six runs explode, the others end
    told = capfd.readouterr()
    assert "2 of 6 runs failed" in told.err
    assert "exploding/repeat0/fold1: Step" in told.err
    assert "log.txt" in told.err
    assert "c2-ccp" in told.out
    in_this_process.undo()

    broken = tmp_path / "broken"
    killed = start(benchmark(features, broken, methods, "--workers", "2"))
    wait_for(lambda: evaluations(broken) >= 3, killed)
    children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    assert len(children) >= 2
    killed.kill()
    killed.communicate()
    before = evaluations(broken)
    wait_for(lambda: not any(is_running(child) for child in children))  # nobody trains on for nobody

    interrupted = start(benchmark(features, broken, methods, "--workers", "1"))
    wait_for(lambda: evaluations(broken) > before + 3, interrupted)
    os.killpg(interrupted.pid, signal.SIGINT)
    message = interrupted.communicate(timeout=PATIENT_SECONDS)[1]
    assert interrupted.returncode == 130, message
    assert "the same command continues it" in message
    assert "Traceback" not in message

    finished = {path: path.stat().st_mtime_ns for path in broken.glob("*/*/*/result.json")}
    assert main(benchmark(features, broken, methods)) == 1
    assert all(path.stat().st_mtime_ns == written for path, written in finished.items())  # never repeated
    assert rows(broken) == rows(tmp_path / "whole")
    for run in (tmp_path / "whole").glob("c2*/repeat0/fold*"):
        assert log(broken / run.relative_to(tmp_path / "whole")) == log(run)

    results = rows(broken)
    assert {row["method"] for row in results} == {"c2", "c2-ccp"}
    assert len([row for row in results if row["setting"] == "separated"]) == 2 * 2 * 3
    assert len([row for row in results if row["setting"] == "concatenated"]) == 2 * 3
    assert {row["dim"] for row in results if row["setting"] == "concatenated"} == {"8"}
    table = (broken / "table.md").read_text()
    assert "exploding: 0 of 2 runs are finished." in table
    assert (broken / "improvement.svg").stat().st_size > 1000
    assert (broken / "improvement.png").read_bytes().startswith(b"\x89PNG")

    capfd.readouterr()
    assert main(benchmark(features, broken, "c2-ccp", "--json")) == 0  # all of it is done: only tables are written
    document = json.loads(capfd.readouterr().out)
    assert {entry["method"] for entry in document["table"]} == {"c2", "c2-ccp"}
    assert document["failed"] == []


def plan(arguments, capsys):
    assert main([*arguments, "--plan", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_lists_runs_costs_and_states_and_writes_nothing(features, tmp_path, capsys):
    shown = plan(benchmark(features, tmp_path / "out", "c2,ms-ccp", "--repeats", "2"), capsys)
    assert [run["name"] for run in shown["runs"]][:3] == [
        "c2/repeat0/fold0",
        "c2/repeat0/fold1",
        "ms-ccp/repeat0/fold0",
    ]
    assert shown["totals"].pop("seconds_left") > 0
    assert shown["totals"] == {"done": 0, "partly": 0, "open": 8, "steps_left": 8 * 120}
    assert shown["runs"][1]["seed"] == 1
    assert shown["runs"][1]["state"] == "open"
    assert not (tmp_path / "out").exists()
    assert main(benchmark(features, tmp_path / "out", "c2", "--plan")) == 0
    assert "240 steps" in capsys.readouterr().out


def test_without_a_limit_patience_decides(image_folder, tmp_path, capsys):
    small = ("data.resize=36", "data.crop=32", "model.backbone=small_cnn", "train.classes_per_batch=4")
    given = (f"data.root={image_folder}", *small, "train.images_per_class=2", "protocol.folds=2", "run.workers=0")
    options = [part for setting in given for part in ("--set", setting)]
    arguments = ["benchmark", "mlrc", "--data", "folder", "--methods", "c2", *options, "--out", str(tmp_path / "out")]
    shown = plan(arguments, capsys)
    assert {run["steps"] for run in shown["runs"]} == {None}
    assert shown["totals"]["steps_left"] is None
    assert main([*arguments, "--plan"]) == 0
    assert "until patience" in capsys.readouterr().out


def test_selection_on_the_test_classes_is_marked_everywhere(features, tmp_path, in_this_process, capfd):  # noqa: ARG001
    out = tmp_path / "out"
    settings = ("protocol.select_on=test", "train.max_steps=4", "train.images_per_class=2")
    assert main(benchmark(features, out, "c2,c2-proxy", protocol="conventional", settings=settings)) == 0
    mark = "selected on the test classes themselves"
    assert mark in capfd.readouterr().out
    assert f"\\* {mark}" in (out / "table.md").read_text()
    assert f"* {mark}" in (out / "table.tex").read_text()
    assert "| c2 \\* |" in (out / "table.md").read_text()
    assert mark in (out / "improvement.svg").read_text()
    with (out / "table.csv").open() as file:
        assert {row["selected_on"] for row in csv.DictReader(file)} == {"test"}
    assert {row["selected_on"] for row in rows(out)} == {"test"}
    result = json.loads((out / "c2" / "repeat0" / "result.json").read_text())
    assert result["selected_on"] == "test"
    assert "test classes" in (out / "c2" / "repeat0" / "report.html").read_text()
    assert [row["metric"] for row in rows(out)][:2] == ["recall_at_1", "recall_at_2"]
    capfd.readouterr()
    assert main(benchmark(features, out, "c2", "--json", protocol="conventional", settings=settings)) == 0
    assert f"* {mark}" in json.loads(capfd.readouterr().out)["notes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": "c2,c2-cpp"}, "no method 'c2-cpp', shipped or as a TOML file; did you mean 'c2-ccp'"),
        ({"methods": "c2,,ms"}, "empty name"),
        ({"settings": ("protocol.fold=2",)}, "protocol.fold = 2"),
        ({"settings": ("protocol.select_on=test",)}, "validation classes only"),
        ({"settings": ("optim.learning_rate=1",)}, "Unknown key 'optim.learning_rate'"),
        ({"settings": ("loss.margin=1",)}, "loss.margin"),
        ({"settings": ("data.path=missing.npz",)}, "missing.npz"),
        ({"settings": ("train.classes_per_batch=100",)}, "100"),
        ({"more": ("--workers", "0")}, "--workers"),
        ({"more": ("--repeats", "0")}, "--repeats"),
        ({"more": ("--paper", "cubs")}, "did you mean 'cub'"),
    ],
)
def test_bad_input_ends_with_code_2_before_anything_is_written(features, tmp_path, capfd, change, message):
    arguments = benchmark(
        features,
        tmp_path / "out",
        change.get("methods", "c2"),
        *change.get("more", ()),
        settings=change.get("settings", ()),
    )
    assert main(arguments) == 2
    told = capfd.readouterr().err
    assert message in " ".join(told.split())
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def after_another(command, monkeypatch):
    """Let `command` begin and end while the next one checks its runs, before it has the folder for itself."""
    check = rehearsal.rehearse

    def rehearse(*arguments):
        monkeypatch.setattr(rehearsal, "rehearse", check)
        assert main(command) == 0
        return check(*arguments)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)


@pytest.mark.usefixtures("in_this_process")
def test_what_another_command_did_meanwhile_is_kept(features, tmp_path, monkeypatch, capfd):
    settings = ("train.max_steps=4",)
    after_another(benchmark(features, tmp_path / "out", "c1", "--repeats", "2", settings=settings), monkeypatch)
    assert main(benchmark(features, tmp_path / "out", "c2", "--json", settings=settings)) == 0
    assert {row["method"] for row in rows(tmp_path / "out")} == {"c1", "c2"}
    assert {row["repeat"] for row in rows(tmp_path / "out") if row["method"] == "c1"} == {"0", "1"}
    request = tomllib.loads((tmp_path / "out" / "benchmark.toml").read_text())
    assert (request["methods"], request["repeats"]) == (["c1", "c2"], 2)
    assert "c1" in (tmp_path / "out" / "report.html").read_text()
    assert "2 runs to train." in capfd.readouterr().err


@pytest.mark.usefixtures("in_this_process")
def test_the_folder_stays_locked_until_its_page_is_written(features, tmp_path, monkeypatch):
    write, seen = page.write_benchmark_report, []

    def written(*arguments):
        with pytest.raises(UserError, match="busy"), lock(tmp_path / "out" / ".lock", "busy"):
            pytest.fail("two hold one lock")
        seen.append(arguments)
        return write(*arguments)

    monkeypatch.setattr(page, "write_benchmark_report", written)
    assert main(benchmark(features, tmp_path / "out", "c2", settings=("train.max_steps=4",))) == 0
    assert len(seen) == 1


def test_another_benchmark_in_the_same_folder_is_refused(features, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    settings = ", ".join(f'"{text}"' for text in (f"data.path={features}", *QUICK))
    (tmp_path / "out" / "benchmark.toml").write_text(
        f'protocol = "mlrc"\ndata = "features"\nmethods = ["c2"]\nrepeats = 1\nsettings = [{settings}]\n'
    )
    assert main(benchmark(features, tmp_path / "out", "c2,ms", "--plan")) == 0
    assert main(benchmark(features, tmp_path / "out", "c2", settings=("optim.lr=0.5",))) == 2
    assert "optim.lr = its default, not 0.5" in capsys.readouterr().err


@pytest.mark.usefixtures("in_this_process")
def test_models_of_different_data_do_not_meet_in_a_table(features, tmp_path, capfd):
    arrays = dict(np.load(features))
    assert main(benchmark(features, tmp_path / "bench", "c2")) == 0
    np.savez(features, **{name: np.concatenate([rows[:-2], rows[:-3:-1]]) for name, rows in arrays.items()})
    assert main(benchmark(features, tmp_path / "bench", "c2")) == 0, "nothing is left to train on other data"
    for more in ((), ("--plan",)):
        capfd.readouterr()
        assert main(benchmark(features, tmp_path / "bench", "c2,c1", *more)) == 2
        assert "The data (classes, labels or features) are not those" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "bench" / "c1").exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_benchmark_goes_on_where_its_data_have_moved_to(features, tmp_path, capfd):
    out, moved, quick = tmp_path / "bench", tmp_path / "moved.npz", ("train.max_steps=4",)
    assert main(benchmark(features, out, "c2", settings=quick)) == 0
    before = rows(out)
    features.rename(moved)
    assert main(benchmark(moved, out, "c2,c1", settings=quick)) == 0
    assert [row for row in rows(out) if row["method"] == "c2"] == before
    assert {row["method"] for row in rows(out)} == {"c1", "c2"}
    assert f"data.path={moved}" in tomllib.loads((out / "benchmark.toml").read_text())["settings"]
    arrays = dict(np.load(moved))
    np.savez(features, **{**arrays, "features": arrays["features"] + 1})
    for methods in ("c2", "c2,ms"):  # with nothing left to train, the page would name the wrong file
        assert main(benchmark(features, out, methods, settings=quick)) == 2
        assert "The data (classes, labels or features) are not those" in " ".join(capfd.readouterr().err.split())
