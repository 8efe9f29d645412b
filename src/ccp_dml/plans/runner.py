"""Train the runs of a plan with several worker processes on this machine. Benchmarks and studies share it.

Workers are long-lived, as importing torch takes seconds. A run that fails, even one that takes its process down, does
not touch the others. Nothing is lost when everything is killed: each run's folder knows how to go on.

`Runner` is what benchmarks and studies see; `cluster.ClusterRunner` is the other one, for many machines.
"""

import multiprocessing
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, Protocol

import torch

from ccp_dml.foundation.machine import usable_cores
from ccp_dml.plans.messages import (
    Assignment,
    Evaluated,
    Failed,
    Finished,
    Message,
    Outcome,
    Progress,
    Share,
    Stopped,
    how_it_died,
)
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.plans.worker import work

SECONDS_TO_LEAVE = 5.0
"""What a worker gets to end in good order before it is killed, when everything is to stop."""

SECONDS_TO_TIDY = 60.0
"""What an idle worker gets to end by itself; its loader processes may take seconds to go."""


class PlanWatcher:
    """Is told how the runs go. This one ignores everything; the command line's shows progress."""

    def note(self, text: str) -> None:
        """Hear about something that goes on beside the runs."""

    def started(self, run: PlannedRun) -> None: ...

    def progress(self, run: PlannedRun, step: int, best: float | None) -> None: ...

    def goes_on(self, run: PlannedRun, step: int, score: float) -> bool:  # noqa: ARG002
        """Decide whether a supervised run goes on, now that an evaluation gave `score`."""
        return True

    def stopped(self, run: PlannedRun) -> None:
        """Hear that a supervised run was ended by `goes_on`."""

    def finished(self, run: PlannedRun, result: dict[str, Any]) -> None: ...

    def failed(self, run: PlannedRun, message: str) -> None: ...


@dataclass(frozen=True)
class Failure:
    """A run that did not end well; its folder's log says more."""

    run: PlannedRun
    message: str


class Worker:
    """The parent's end of a worker process."""

    def __init__(self, share: Share) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, share))
        with ignored_interrupts():
            self.process.start()
        theirs.close()  # or the pipe would stay open when the worker dies
        self.run: PlannedRun | None = None
        self.is_spent = False  # an unexpected error may have left the process in disorder

    def give(self, run: PlannedRun) -> None:
        self.run = run
        self.connection.send(Assignment(pickle.dumps(run)))

    def messages(self) -> list[Message]:
        """Collect what the worker has said since the last time; if it died, that comes last."""
        alive = self.process.is_alive()  # asked first: what it said before it died is still in the pipe
        messages: list[Message] = []
        try:
            while self.connection.poll():
                messages.append(self.connection.recv())
        except (EOFError, OSError):
            self.process.join(SECONDS_TO_LEAVE)
            alive = False
        ended = any(not isinstance(message, Progress | Evaluated) for message in messages)
        if not alive and self.run is not None and not ended:
            messages.append(Failed(how_it_died(self.process.exitcode), True))
        return messages


class Runner(Protocol):
    """Trains planned runs, several at a time.

    On Ctrl-C (`KeyboardInterrupt`) all training is ended before it is passed on; calling again goes on from there.
    """

    def train(self, source: Iterator[PlannedRun], most: int, watcher: PlanWatcher) -> list[Failure]:
        """Train what `source` gives, which are `most` runs at the most; return those that failed.

        `source` is asked for a run only when there is a place to train it.
        """
        ...


@dataclass(frozen=True)
class LocalRunner:
    """Trains on this machine, with so many worker processes."""

    workers: int = 1

    def train(self, source: Iterator[PlannedRun], most: int, watcher: PlanWatcher) -> list[Failure]:
        return keep_busy(source, machine_shares(min(self.workers, most)), watcher)


def execute(runs: Sequence[PlannedRun], runner: Runner, watcher: PlanWatcher | None = None) -> list[Failure]:
    """Train what is not done yet; return the runs that failed. Where nothing is left, nobody is asked to train."""
    left = [run for run in runs if not run.is_done]
    if not left:
        return []
    return runner.train(iter(left), len(left), watcher or PlanWatcher())


def keep_busy(source: Iterator[PlannedRun], shares: Sequence[Share], watcher: PlanWatcher) -> list[Failure]:
    """Train what `source` gives, a worker per share; it is asked for a run only when a worker is free to train it."""
    crew: list[Worker] = []
    failures: list[Failure] = []
    try:
        for share in shares:
            if (run := next(source, None)) is not None:
                crew.append(Worker(share))
                begin(crew[-1], run, watcher)
        while any(worker.run for worker in crew):
            wait([worker.connection for worker in crew if worker.run], timeout=1.0)
            for place, worker in enumerate(crew):
                for message in worker.messages():
                    failure = take(message, worker, watcher)
                    if failure is not None:
                        failures.append(failure)
                if worker.run is None and (run := next(source, None)) is not None:
                    if worker.is_spent or not worker.process.is_alive():
                        dismiss([worker])
                        crew[place] = worker = Worker(shares[place])
                    begin(worker, run, watcher)
        for worker in crew:
            release(worker)
    finally:
        dismiss(crew)
    return failures


def begin(worker: Worker, run: PlannedRun, watcher: PlanWatcher) -> None:
    worker.give(run)
    watcher.started(run)


def take(message: Message, worker: Worker, watcher: PlanWatcher) -> Failure | None:
    """Act on what a worker said about its run."""
    run = worker.run
    assert run is not None
    match message:
        case Progress(step, best):
            watcher.progress(run, step, best)
            return None
        case Evaluated(step, score):
            with suppress(OSError):  # it may have died, which it will be found to have
                worker.connection.send(watcher.goes_on(run, step, score))
            return None
        case Stopped() | Finished() | Failed():
            worker.run, worker.is_spent = None, isinstance(message, Failed) and message.is_unexpected
            return conclude(run, message, watcher)


def conclude(run: PlannedRun, outcome: Outcome, watcher: PlanWatcher) -> Failure | None:
    """Tell the watcher how a run ended."""
    match outcome:
        case Stopped():
            watcher.stopped(run)
        case Finished(result):
            watcher.finished(run, result)
        case Failed(text):
            watcher.failed(run, text)
            return Failure(run, text)
    return None


def release(worker: Worker) -> None:
    """Let an idle worker end by itself."""
    with suppress(OSError):  # it may have ended already
        worker.connection.send(None)
    worker.process.join(SECONDS_TO_TIDY)


def dismiss(crew: Sequence[Worker]) -> None:
    """End all workers, in good order where that is quick: every file is whole at any moment."""
    for worker in crew:
        worker.process.terminate()
    deadline = monotonic() + SECONDS_TO_LEAVE
    for worker in crew:
        worker.process.join(max(0.0, deadline - monotonic()))
        worker.process.kill()
        worker.process.join()


def machine_shares(workers: int) -> list[Share]:
    """Divide the machine among workers: cores are shared out, CUDA devices are given in turn."""
    cores = usable_cores()
    devices = torch.cuda.device_count()
    threads = max(1, min(torch.get_num_threads(), cores // max(1, workers)))
    return [Share(workers, threads, f"cuda:{number % devices}" if devices else None) for number in range(workers)]


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Let processes started in the block ignore Ctrl-C from their first moment on: no stack traces."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
