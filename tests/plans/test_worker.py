"""What a worker does with a run, in this process; `test_runner` starts real ones."""

import json

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.environment import environment
from ccp_dml.foundation.files import write_json
from ccp_dml.foundation.locks import lock
from ccp_dml.plans import worker
from ccp_dml.plans.messages import Failed, Finished, Share
from ccp_dml.plans.plan import plan_run, state_of
from ccp_dml.plans.worker import attempt, with_share
from ccp_dml.records.ownership import Ownership
from ccp_dml.runs.datasets import build_data

QUICK = ("train.max_steps=8", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=4")
ALONE = Share(workers=1, threads=1, device=None)


class Parent:
    """A connection that remembers what was sent, and may break."""

    def __init__(self, breaks_after=None):
        self.messages, self.breaks_after = [], breaks_after

    def send(self, message):
        if self.breaks_after is not None and len(self.messages) >= self.breaks_after:
            raise BrokenPipeError("nobody listens")
        self.messages.append(message)


@pytest.mark.parametrize(("allowed", "used"), [(8, 3), (2, 2)])
def test_a_worker_keeps_freed_memory_and_no_more_threads_than_it_may(monkeypatch, allowed, used):
    done = []
    monkeypatch.setattr(worker, "serve", lambda *_: done.append("serves"))
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: done.append("keeps memory"))
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker.os, "_exit", done.append)
    monkeypatch.setattr(worker.torch, "get_num_threads", lambda: allowed)
    monkeypatch.setattr(worker.torch, "set_num_threads", done.append)
    worker.work_alone(Parent(), Share(workers=1, threads=3, device=None))
    assert done == ["keeps memory", used, "serves", 0]


def planned(features, folder, *settings):
    return plan_run("run", folder, ["features", "c2"], [f"data.path={features}", *QUICK, *settings])


def test_a_run_is_trained_and_told(features, tmp_path, capfd):
    parent = Parent()
    run = planned(features, tmp_path / "run")
    outcome = attempt(run, ALONE, build_data, parent)
    assert isinstance(outcome, Finished)
    assert outcome.result == json.loads((run.folder / "result.json").read_text())
    assert state_of(run.folder).state == "done"
    assert parent.messages[0].step == 0
    log = (run.folder / "log.txt").read_text()
    assert "step 4 " in log
    assert "step 8 " in log
    printed, complaints = capfd.readouterr()
    assert printed == ""  # all output went to the log
    assert "step" not in complaints  # where other tests' servers may be heard


def test_an_interrupted_run_goes_on_to_the_same_result(features, tmp_path):
    whole, broken = planned(features, tmp_path / "whole"), planned(features, tmp_path / "broken")
    attempt(whole, ALONE, build_data, Parent())

    class Interrupt(Parent):
        def send(self, message):
            if message.step > 4:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ccp_dml.plans.worker.SECONDS_BETWEEN_STEPS_TOLD", -1.0)
        with pytest.raises(KeyboardInterrupt):
            attempt(broken, ALONE, build_data, Interrupt())
    assert state_of(broken.folder).state == "partly"
    assert state_of(broken.folder).step == 4
    assert isinstance(attempt(broken, ALONE, build_data, Parent()), Finished)
    assert "Resuming at step 4" in (broken.folder / "log.txt").read_text()
    results = [json.loads((run.folder / "result.json").read_text()) for run in (whole, broken)]
    for result in results:
        del result["seconds"], result["peak_memory"]
    assert results[0] == results[1]


def test_a_run_that_was_given_to_another_writes_nothing_any_more(features, tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.plans.worker.SECONDS_BETWEEN_STEPS_TOLD", -1.0)
    run = planned(features, tmp_path / "run")
    ownership = Ownership(run.folder)
    ownership.claim()
    files = {}

    class CutOff(Parent):
        def send(self, message):
            if message.step == 6:
                Ownership(run.folder).claim()  # as another machine does that is given the run
                files.update({file: file.read_bytes() for file in run.folder.iterdir() if file.name != "log.txt"})

    outcome = attempt(run, ALONE, build_data, CutOff(), ownership=ownership)
    assert isinstance(outcome, Failed)
    assert "taken over" in outcome.message
    assert state_of(run.folder).step == 4
    assert files == {file: file.read_bytes() for file in run.folder.iterdir() if file.name != "log.txt"}
    assert isinstance(attempt(run, ALONE, build_data, Parent(), ownership=ownership), Failed)  # nor does it begin again


def test_numbers_that_explode_fail_the_run_alone(features, tmp_path):
    run = planned(features, tmp_path / "run", "optim.lr=3e37")
    outcome = attempt(run, ALONE, build_data, Parent())
    assert isinstance(outcome, Failed)
    assert "not finite" in outcome.message
    assert not outcome.is_unexpected
    assert "NonFiniteError" in (run.folder / "log.txt").read_text()  # the whole story


def test_a_user_mistake_is_one_sentence(tmp_path):
    outcome = attempt(planned(tmp_path / "missing.npz", tmp_path / "run"), ALONE, build_data, Parent())
    assert isinstance(outcome, Failed)
    assert "missing.npz" in outcome.message
    assert not outcome.is_unexpected


def test_an_unexpected_error_ends_the_process(features, tmp_path):
    outcome = attempt(planned(features, tmp_path / "run"), ALONE, build_data, Parent(breaks_after=0))
    assert outcome == Failed("BrokenPipeError: nobody listens", is_unexpected=True)


@pytest.mark.parametrize(("workers", "remedy"), [(1, "lower train.classes_per_batch"), (2, "train fewer runs at once")])
@pytest.mark.parametrize(
    ("error", "size"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has"), "2.50 GiB"),
        (RuntimeError("can't allocate memory: you tried to allocate 64000000000 bytes."), "64.0 GB"),
    ],
)
def test_the_remedy_for_want_of_memory_is_one_that_there_is(
    features, tmp_path, monkeypatch, error, size, workers, remedy
):
    def train(*_, **__):
        raise error

    monkeypatch.setattr(worker, "train", train)
    share = Share(workers=workers, threads=1, device=None)
    outcome = attempt(planned(features, tmp_path / "run"), share, build_data, Parent())
    assert isinstance(outcome, Failed)
    assert outcome.is_unexpected
    assert outcome.message.startswith(f"Out of memory ({size} at once): {remedy}")


def test_what_a_killed_process_left_is_swept(features, tmp_path):
    run = planned(features, tmp_path / "run")
    run.folder.mkdir()
    write_json(run.folder / "environment.json", environment(["ccp"]))
    for name in ("log.txt", ".config.toml.abc.part"):
        (run.folder / name).write_text("half")
    assert isinstance(attempt(run, ALONE, build_data, Parent()), Finished)
    assert not list(run.folder.glob(".*.part"))


def test_two_processes_never_train_in_one_folder(features, tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.plans.worker.SECONDS_FOR_A_PREDECESSOR", 0.0)
    run = planned(features, tmp_path / "run")
    with lock(tmp_path / ".run.lock", "taken"):
        outcome = attempt(run, ALONE, build_data, Parent())
        assert isinstance(outcome, Failed)
        assert "another process" in outcome.message
        with pytest.raises(UserError, match="taken"), lock(tmp_path / ".run.lock", "taken"):
            pass
    assert isinstance(attempt(run, ALONE, build_data, Parent()), Finished)  # the lock went with its holder


def test_a_share_of_the_machine_is_no_part_of_the_recipe(features, image_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("ccp_dml.plans.worker.auto_workers", lambda source: 0 if source.in_memory else 8)
    share = Share(workers=3, threads=1, device="cuda:1")
    rows = planned(features, tmp_path).config
    assert with_share(rows, share, build_data(rows.data)).run.workers == 0
    images = plan_run("images", tmp_path, ["folder", "scratch", "c2"], [f"data.root={image_folder}"]).config
    shared = with_share(images, share, build_data(images.data))
    assert (shared.run.workers, shared.run.device) == (2, "cuda:1")
    chosen = plan_run(
        "chosen",
        tmp_path,
        ["folder", "scratch", "c2"],
        [f"data.root={image_folder}", "run.workers=5", "run.device=cpu"],
    ).config
    assert with_share(chosen, share, build_data(images.data)) == chosen
