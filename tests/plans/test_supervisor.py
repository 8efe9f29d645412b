"""What a worker of a cluster does with a run, without a cluster; `test_cluster` has real ones."""

from types import SimpleNamespace

import pytest

from ccp_dml.foundation.files import write_json
from ccp_dml.plans import supervisor
from ccp_dml.plans.messages import Evaluated, Failed, Finished, Progress, Stopped
from ccp_dml.plans.shared_folder import probe_in
from ccp_dml.plans.supervisor import MachineFailure, Order, host_of, share_of_machine, supervise
from ccp_dml.records.ownership import Ownership


class FakeWorker:
    address = "tcp://10.0.0.7:4000"
    status = SimpleNamespace(name="running")

    def __init__(self):
        self.said = []
        self.task = SimpleNamespace(state="executing")
        self.state = SimpleNamespace(tasks={"key": self.task}, nthreads=2)

    def get_current_task(self):
        return "key"

    def log_event(self, topic, message):
        assert topic == "topic"
        self.said.append(message)


class FakeChild:
    """Says what it was told to; an exception among the messages is raised."""

    def __init__(self, *messages):
        self.messages, self.given, self.answers, self.is_ended = list(messages), [], [], False
        self.connection = SimpleNamespace(send=self.answers.append)

    def give(self, assignment):
        assert assignment.ownership.holds()  # claimed before the child begins
        self.given.append(assignment)

    def next_message(self, timeout):  # noqa: ARG002
        message = self.messages.pop(0) if self.messages else None
        if isinstance(message, Exception):
            raise message
        return message

    def exit_code(self):
        return -9

    def end(self):
        self.is_ended = True


@pytest.fixture
def probe(tmp_path):
    with probe_in(tmp_path) as probe:
        yield probe


@pytest.fixture
def worker(monkeypatch):
    worker = FakeWorker()
    monkeypatch.setattr(supervisor, "get_worker", lambda: worker)
    return worker


def supervised(probe, tmp_path, monkeypatch, *messages):
    child = FakeChild(*messages)
    monkeypatch.setattr(supervisor, "child_in", lambda _: child)
    return child, Order("c2/repeat0", tmp_path / "run", b"packed", "topic", probe)


def test_what_a_run_says_is_passed_on(probe, tmp_path, monkeypatch, worker):
    messages = (Progress(3, None), None, Progress(5, 0.5), Finished({"seed": 0}))
    child, order = supervised(probe, tmp_path, monkeypatch, *messages)
    assert supervise(order) == Finished({"seed": 0})
    assert [said["kind"] for said in worker.said] == ["started", "progress", "progress"]
    assert worker.said[2] | {"step": 5, "best": 0.5, "run": "c2/repeat0"} == worker.said[2]
    assert child.given[0].packed_run == b"packed"
    assert not Ownership(order.folder).file.exists()


def test_a_mistake_is_an_answer_and_a_lost_process_is_an_error(probe, tmp_path, monkeypatch, worker):  # noqa: ARG001
    _, order = supervised(probe, tmp_path, monkeypatch, Failed("too few classes"))
    assert supervise(order) == Failed("too few classes")
    for error in (EOFError(), BrokenPipeError()):
        _, order = supervised(probe, tmp_path, monkeypatch, error)
        with pytest.raises(MachineFailure, match="killed"):
            supervise(order)


def test_a_run_that_nobody_wants_any_more_is_ended(probe, tmp_path, monkeypatch, worker):
    for state in ("cancelled", "released"):
        child, order = supervised(probe, tmp_path, monkeypatch, Progress(1, None))
        worker.task.state = state
        assert supervise(order) == Stopped()
        assert child.is_ended


def test_whether_to_go_on_is_asked(probe, tmp_path, monkeypatch, worker):
    answers = SimpleNamespace(name="answers", replies=[TimeoutError(), True])

    def get(timeout):  # noqa: ARG001
        reply = answers.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    answers.get = get
    monkeypatch.setattr(supervisor, "get_client", lambda: None)
    monkeypatch.setattr(supervisor, "Queue", lambda client: answers)  # noqa: ARG005
    child, order = supervised(probe, tmp_path, monkeypatch, Evaluated(4, 0.25), Stopped())
    assert supervise(order) == Stopped()
    assert child.answers == [True]
    assert worker.said[1] == {"run": "c2/repeat0", "kind": "evaluated", "step": 4, "score": 0.25, "answers": "answers"}


def test_a_finished_run_is_not_trained_again(probe, tmp_path, monkeypatch, worker):  # noqa: ARG001
    child, order = supervised(probe, tmp_path, monkeypatch)
    write_json(order.folder / "result.json", {"seed": 7})
    assert supervise(order) == Finished({"seed": 7})
    assert child.given == []


def test_a_machine_that_lacks_something_says_so(probe, tmp_path, monkeypatch, worker):  # noqa: ARG001
    (probe.folder / "token").write_text("of another disk")
    child, order = supervised(probe, tmp_path, monkeypatch)
    assert "all machines share" in supervise(order).message
    assert child.given == []


def test_cores_are_shared_by_the_runs_of_a_machine(has_cores, worker):  # noqa: ARG001
    has_cores(16)
    assert host_of("tcp://10.0.0.7:4000") == "10.0.0.7"
    assert share_of_machine({"10.0.0.7": 4, "10.0.0.8": 1}).threads == 4
    assert share_of_machine({}).threads == 8  # a worker that joined since the count knows its own threads
    assert share_of_machine({"10.0.0.7": 99}).threads == 1
