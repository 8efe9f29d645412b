"""Run on a worker of a Dask cluster: have a child process train one run, and tell the coordinator how it goes.

The worker's own process stays free to answer the scheduler, and does not import torch. If it is killed, the child ends
with it, and Dask gives the run to another worker, which goes on from the last checkpoint. If the scheduler only thinks
that it is dead, the new owner's token keeps this one's child from writing (`records.ownership`).
"""

import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Queue, Worker, get_client, get_worker

from ccp_dml.foundation.machine import usable_cores
from ccp_dml.plans.child import Child, Place
from ccp_dml.plans.messages import (
    Assignment,
    Evaluated,
    Failed,
    Finished,
    Outcome,
    Progress,
    Share,
    Stopped,
    how_it_died,
)
from ccp_dml.plans.shared_folder import Probe
from ccp_dml.records import layout
from ccp_dml.records.documents import read_json
from ccp_dml.records.ownership import Ownership

SECONDS_BETWEEN_LOOKS = 1.0
"""How often a quiet run is asked whether it is still wanted."""


class MachineFailure(Exception):
    """Nobody's mistake: the process that trained is gone. Dask tries the run again."""


class NotWanted(Exception):
    """The coordinator is gone, or has cancelled the run."""


@dataclass(frozen=True)
class Order:
    """A run to train on whatever worker gets it."""

    name: str  # of the run
    folder: Path  # absolute
    packed_run: bytes
    topic: str  # where the coordinator listens
    probe: Probe
    places: dict[str, int] = field(default_factory=dict)  # runs trained at once, by host


_kept = threading.local()  # each thread of a worker keeps its child from one run to the next
_checked: set[str] = set()  # probes that this process has passed


def supervise(order: Order) -> Outcome:
    """Have one run trained, or gone on with. Raises MachineFailure if that failed for no reason in the run itself."""
    if (missing := missing_on_this_machine(order.probe)) is not None:
        return Failed(missing)
    result = read_json(order.folder / layout.RESULT)
    if result is not None:  # Dask asks again when the worker that has the answer is gone
        return Finished(result)
    told = Told(get_worker(), order)
    ownership = Ownership(order.folder)
    ownership.claim()
    child = child_in(Place(share_of_machine(order.places), order.probe.working_folder))
    told.started()
    try:
        child.give(Assignment(order.packed_run, ownership))
        outcome = watch(child, told)
    except (EOFError, BrokenPipeError):
        raise MachineFailure(how_it_died(child.exit_code())) from None
    except NotWanted:
        child.end()
        outcome = Stopped()
    ownership.release()
    return outcome


def missing_on_this_machine(probe: Probe) -> str | None:
    """Check this machine once in the life of a probe: workers may join late."""
    if probe.token in _checked:
        return None
    missing = probe.missing_here()
    if missing is None:
        _checked.add(probe.token)
    return missing


def name_and_missing(probe: Probe) -> tuple[str, str | None]:
    """Ask the machine that this runs on for its name, and for what it lacks."""
    return probe.here(), missing_on_this_machine(probe)


def child_in(place: Place) -> Child:
    """Get this thread's child; a new one if there is none yet, it has left, or it belongs to another place."""
    child: Child | None = getattr(_kept, "child", None)
    if child is not None and child.is_alive and child.place == place:
        return child
    if child is not None:
        child.end()
    child = _kept.child = Child(place)
    return child


def share_of_machine(places: dict[str, int]) -> Share:
    """Divide this machine's cores among the runs that its workers may train at once."""
    worker = get_worker()
    cores = usable_cores()
    at_once = places.get(host_of(worker.address), worker.state.nthreads)
    return Share(workers=at_once, threads=max(1, cores // at_once), device=None)


def host_of(address: str) -> str:
    """Read the host out of an address such as tcp://10.0.0.7:41234."""
    return address.rpartition("://")[2].rpartition(":")[0]


def watch(child: Child, told: "Told") -> Outcome:
    """Pass on what the child says until its run has ended."""
    while True:
        match child.next_message(SECONDS_BETWEEN_LOOKS):
            case Progress(step, best):
                told.progress(step, best)
            case Evaluated(step, score):
                child.connection.send(told.asked(step, score))
            case Finished() | Failed() | Stopped() as outcome:
                return outcome
        if not told.is_wanted():
            raise NotWanted


class Told:
    """Talks to the coordinator about one run."""

    def __init__(self, worker: Worker, order: Order) -> None:
        self.worker, self.order, self.key = worker, order, worker.get_current_task()
        self.answers: Queue | None = None

    def started(self) -> None:
        self.say(kind="started", host=socket.gethostname())

    def progress(self, step: int, best: float | None) -> None:
        self.say(kind="progress", step=step, best=best)

    def asked(self, step: int, score: float) -> bool:
        """Ask whether the run goes on."""
        if self.answers is None:  # a queue for this attempt alone: the answer to an earlier one must not be taken
            self.answers = Queue(client=get_client())
        self.say(kind="evaluated", step=step, score=score, answers=self.answers.name)
        while self.is_wanted():
            try:
                return bool(self.answers.get(timeout=SECONDS_BETWEEN_LOOKS))
            except TimeoutError:
                continue
        raise NotWanted

    def is_wanted(self) -> bool:
        """Tell whether somebody still waits for the run; not so when the coordinator was killed."""
        task = self.worker.state.tasks.get(self.key)
        return task is not None and task.state == "executing" and self.worker.status.name == "running"

    def say(self, **values: Any) -> None:
        self.worker.log_event(self.order.topic, {"run": self.order.name, **values})
