"""Plans trained by real Dask workers, one of which is killed; and a coordinator without a cluster."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
from distributed import Client
from distributed.scheduler import KilledWorker

from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.plans.cluster import Workers, connected, local_workers, outcome_of
from ccp_dml.plans.messages import Finished
from ccp_dml.plans.supervisor import MachineFailure

QUICK = ("train.max_steps=60", "train.evaluate_every=2", "train.classes_per_batch=4", "model.embedding_dim=4")
PATIENT_SECONDS = 240  # machines may be busy; only a hang reaches this


def benchmark(features, out, *more):
    settings = (f"data.path={features}", "run.map_points=0", *QUICK)
    options = [part for setting in settings for part in ("--set", setting)]
    methods = ("--methods", "c2,c2-ccp-s", "--repeats", "2")
    return ["benchmark", "conventional", "--data", "features", *methods, "--out", str(out), *options, *more]


def rows(folder):
    measured = {"seconds", "peak_memory"}
    with (folder / "results.csv").open() as file:
        return [{key: value for key, value in row.items() if key not in measured} for row in csv.DictReader(file)]


def kill_who_trains(address, run, killed):
    """Kill the worker that trains `run`, as soon as there is a checkpoint to go on from; note its child in `killed`."""
    deadline = time.monotonic() + PATIENT_SECONDS
    while not (run / "checkpoint.pt").is_file():
        assert time.monotonic() < deadline
        time.sleep(0.002)
    with Client(address, set_as_default=False) as client:
        pids = client.run(os.getpid)
        busy = [worker for worker, keys in client.processing().items() if any(run.parent.name in key for key in keys)]
        worker = psutil.Process(pids[busy[0]])
    killed += worker.children(recursive=True)
    os.kill(worker.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENT_SECONDS)
def test_a_killed_worker_changes_no_table(features, tmp_path, capfd, in_this_process):
    with local_workers(2) as address:
        killed = []
        victim = tmp_path / "cluster" / "c2-ccp-s" / "repeat0"
        killer = threading.Thread(target=kill_who_trains, args=(address, victim, killed))
        killer.start()
        assert main(benchmark(features, tmp_path / "cluster", "--cluster", address)) == 0
        killer.join()
        assert killed
        assert not [child for child in killed if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert "goes on at" in capfd.readouterr().err
        assert "Resuming at step" in (victim / "log.txt").read_text()
        other_disk = benchmark(features, tmp_path / "cluster", "--cluster", address, "--repeats", "3")
        in_this_process.setattr("ccp_dml.plans.shared_folder.TOKEN", "unseen")
        assert main(other_disk) == 2
        assert "all machines share" in capfd.readouterr().err
        in_this_process.setattr("ccp_dml.plans.shared_folder.TOKEN", "token")
    assert main(benchmark(features, tmp_path / "serial")) == 0
    assert rows(tmp_path / "cluster") == rows(tmp_path / "serial")
    assert len(rows(tmp_path / "serial")) == 6 * 4  # six scores of four runs
    for table in ("table.md", "table.csv", "table.tex"):
        assert (tmp_path / "cluster" / table).read_text() == (tmp_path / "serial" / table).read_text()
    leftovers = [path for path in (tmp_path / "cluster").rglob(".*") if path.name != ".lock"]
    assert leftovers == []


def test_a_scheduler_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr("ccp_dml.plans.cluster.SECONDS_TO_CONNECT", 0.3)
    with pytest.raises(UserError, match="no scheduler answers there"), connected("tcp://127.0.0.1:9"):
        pytest.fail("connected")


def test_gpus_are_places_where_workers_have_some():
    def client(**workers):
        return SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers})  # noqa: ARG005

    cpu, gpu = {"nthreads": 4, "resources": {}}, {"nthreads": 4, "resources": {"GPU": 1.0}}
    without = Workers(client(**{"tcp://a:1": cpu, "tcp://a:2": cpu, "tcp://b:1": cpu}))
    assert (without.places, without.by_host, without.have_gpus) == (12, {"a": 8, "b": 4}, False)
    some = Workers(client(**{"tcp://a:1": gpu, "tcp://a:2": gpu, "tcp://b:1": cpu}))
    assert (some.places, some.by_host, some.have_gpus) == (2, {"a": 2, "b": 0}, True)


def test_how_a_run_ended_is_read_from_its_future():
    def future(status, found=None):
        return SimpleNamespace(status=status, result=lambda: found, exception=lambda: found)

    assert outcome_of(future("finished", Finished({}))) == Finished({})
    assert "memory" in outcome_of(future("error", KilledWorker("key", None, 3))).message
    assert outcome_of(future("error", MachineFailure("its process was killed"))).message == "its process was killed"
    assert outcome_of(future("error", KeyError("x"))).message == "KeyError: 'x'"
    with pytest.raises(UserError, match="scheduler has gone"):
        outcome_of(future("cancelled"))


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENT_SECONDS)
def test_a_killed_command_is_continued_by_the_same_command(features, tmp_path, capfd, in_this_process):  # noqa: ARG001
    """The workers live on, end what they train for the dead command, and go on with it for the next."""
    with local_workers(2) as address:
        given = benchmark(features, tmp_path / "cluster", "--methods", "c2", "--cluster", address)
        command = [sys.executable, "-m", "ccp_dml", *given]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            deadline = time.monotonic() + PATIENT_SECONDS
            while not list((tmp_path / "cluster").rglob("checkpoint.pt")):
                assert first.poll() is None, "it ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.002)
            first.kill()
        assert not (tmp_path / "cluster" / "table.md").exists()
        assert main(given) == 0
    assert main(benchmark(features, tmp_path / "serial", "--methods", "c2")) == 0
    assert rows(tmp_path / "cluster") == rows(tmp_path / "serial")
    assert (tmp_path / "cluster" / "table.md").read_text() == (tmp_path / "serial" / "table.md").read_text()
    capfd.readouterr()
