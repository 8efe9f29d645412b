"""Plans trained by real worker processes."""

import multiprocessing
import os
import signal

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.plans.plan import plan_run, state_of
from ccp_dml.plans.rehearsal import rehearse
from ccp_dml.plans.runner import LocalRunner, PlanWatcher, execute, machine_shares

QUICK = ("train.max_steps=8", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=4")


def planned(features, folder, name, *settings):
    return plan_run(name, folder / name, ["features", "c2"], [f"data.path={features}", *QUICK, *settings])


class Diary(PlanWatcher):
    """Writes everything down; kills the process of the run `victim` as soon as it trains."""

    def __init__(self, victim=None):
        self.events, self.victim = [], victim

    def started(self, run):
        self.events.append(("started", run.name))

    def progress(self, run, step, best):  # noqa: ARG002
        if run.name == self.victim:
            for process in multiprocessing.active_children():
                os.kill(process.pid, signal.SIGKILL)

    def finished(self, run, result):
        self.events.append(("finished", run.name))
        assert 0 < result["test"]["map_at_r"] <= 1

    def failed(self, run, message):  # noqa: ARG002
        self.events.append(("failed", run.name))


def test_a_killed_worker_is_replaced_and_finished_runs_are_never_repeated(features, tmp_path):
    long = planned(features, tmp_path, "long", "train.max_steps=1000000", "train.patience=1000000")
    exploding = planned(features, tmp_path, "exploding", "optim.lr=3e37")
    good = [planned(features, tmp_path, name) for name in ("first", "second")]
    diary = Diary(victim="long")
    failures = execute([exploding, long, *good], LocalRunner(1), diary)
    assert [failure.run.name for failure in failures] == ["exploding", "long"]
    assert "not finite" in failures[0].message
    assert "killed" in failures[1].message
    assert [event for event in diary.events if event[0] != "started"] == [
        ("failed", "exploding"),
        ("failed", "long"),
        ("finished", "first"),
        ("finished", "second"),
    ]
    assert state_of(good[0].folder).state == state_of(good[1].folder).state == "done"
    assert not multiprocessing.active_children()
    again = Diary()
    assert execute(good, LocalRunner(2), again) == []
    assert again.events == []


def test_a_worker_that_dies_between_two_runs_takes_none_of_them_down(features, tmp_path):
    class Deadly(Diary):
        def finished(self, run, result):
            super().finished(run, result)
            for process in multiprocessing.active_children():
                process.kill()
                process.join()

    diary = Deadly()
    assert execute([planned(features, tmp_path, name) for name in ("first", "second")], LocalRunner(1), diary) == []
    assert diary.events[-1] == ("finished", "second")


def test_a_plan_that_is_done_asks_nobody_to_train(features, tmp_path):
    run = planned(features, tmp_path, "done")
    run.folder.mkdir()
    for name in ("config.toml", "result.json"):
        (run.folder / name).touch()
    assert execute([run], None) == [], "as where a cluster has gone, and tables are to be made once more"


def test_cores_are_divided_and_devices_go_round(monkeypatch, has_cores):
    has_cores(8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    shares = machine_shares(3)
    assert [share.device for share in shares] == ["cuda:0", "cuda:1", "cuda:0"]
    assert {share.threads for share in shares} == {2}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert [share.device for share in machine_shares(16)] == [None] * 16
    assert machine_shares(16)[0].threads == 1
    assert machine_shares(0) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.path=missing.npz", "missing.npz"),
        ("protocol.folds=5", "too few for protocol.folds=5"),
        ("train.classes_per_batch=7", "6"),
        ("model.backbone=resnet5O", "resnet5O"),
        ("run.device=cuda:99", "cuda:99"),
    ],
)
def test_what_would_hit_every_run_is_found_before_the_first(features, tmp_path, setting, message):
    good = planned(features, tmp_path, "good")
    assert rehearse([good]) == []
    with pytest.raises(UserError, match=message):
        rehearse([good, planned(features, tmp_path, "bad", setting)])
    assert not list(tmp_path.glob("good*"))
