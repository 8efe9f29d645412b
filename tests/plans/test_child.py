"""Real child processes."""

import os
import pickle
import signal
import subprocess
import sys

import psutil
import pytest

from ccp_dml.plans.child import Child, Place
from ccp_dml.plans.messages import Assignment, Failed, Finished, Progress, Share
from ccp_dml.plans.plan import plan_run

STARTER = """
import sys, time
from pathlib import Path
from ccp_dml.plans.child import Child, Place
from ccp_dml.plans.messages import Share

child = Child(Place(Share(1, 1, None), Path(sys.argv[1])))
print(child.process.pid, flush=True)
time.sleep(60)
"""


def test_a_child_trains_one_run_after_the_other_in_its_folder(features, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the runs are planned
    quick = ("train.max_steps=2", "train.evaluate_every=2", "train.classes_per_batch=4", "model.embedding_dim=4")
    settings = [f"data.path={features.name}", *quick]  # relative: the child works in tmp_path
    child = Child(Place(Share(1, 1, None), tmp_path))
    try:
        kinds = []
        for name, setting in (("good", "run.seed=0"), ("bad", "train.classes_per_batch=99")):
            run = plan_run(name, tmp_path / name, ["features", "c2"], [*settings, setting])
            child.give(Assignment(pickle.dumps(run)))
            while not isinstance(message := child.next_message(120.0), Finished | Failed):
                assert isinstance(message, Progress)
            kinds.append(type(message))
        assert kinds == [Finished, Failed]
        assert "99" in message.message
        assert (tmp_path / "good" / "result.json").is_file()
        assert child.is_alive
    finally:
        child.end()
    assert not child.is_alive


def test_a_child_ends_with_its_starter_however_that_ends(tmp_path):
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(starter.stdout.readline()))
    assert child.is_running()
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running()


def test_a_child_that_cannot_start_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildProcessError, match="exit code 1"):
        Child(Place(Share(1, 1, None), tmp_path))
