"""Train the runs of a plan on a Dask cluster: on machines that others started, or on workers of this machine.

This process, the coordinator, hands out runs and hears how they go; `supervisor` is what workers do with a run. Nothing
is kept here that cannot be lost: when the coordinator is killed, the same command reads from the runs' folders what is
left to do.
"""

import logging
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import torch
from distributed import Client, Future, Nanny, Queue, Scheduler, SpecCluster
from distributed.scheduler import KilledWorker

from ccp_dml.errors import UserError, first_line
from ccp_dml.plans.messages import Failed, Outcome
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.plans.runner import Failure, PlanWatcher, conclude
from ccp_dml.plans.shared_folder import Probe, probe_in
from ccp_dml.plans.supervisor import MachineFailure, Order, host_of, name_and_missing, supervise

GPU = "GPU"
"""The resource that a worker with a GPU of its own declares: `dask worker --resources GPU=1`."""

LOCAL = "local:"
MOST_LOCAL_WORKERS = 256
RETRIES = 2  # of a run whose process died; a run whose whole worker died is given to another by Dask itself
SECONDS_TO_CONNECT = 15
SECONDS_BETWEEN_COUNTS = 5.0
"""How often the workers are counted: machines may join and leave."""


@dataclass(frozen=True)
class ClusterRunner:
    """Trains on the workers of a cluster.

    Args:
        address: of a scheduler, such as tcp://host:8786; or local:N for N workers of this machine.
        folder: holds the folders of all runs, and must be shared by all machines.
    """

    address: str
    folder: Path

    def __post_init__(self) -> None:
        count = self.address.removeprefix(LOCAL)
        if self.is_local and not (count.isdecimal() and 1 <= int(count) <= MOST_LOCAL_WORKERS):
            raise UserError(
                f"--cluster {self.address}: give local:N with N from 1 to {MOST_LOCAL_WORKERS}, such as local:4."
            )

    @property
    def is_local(self) -> bool:
        return self.address.startswith(LOCAL)

    def train(self, source: Iterator[PlannedRun], most: int, watcher: PlanWatcher) -> list[Failure]:
        """Train what `source` gives; it is asked for a run only when a worker has a place for it."""
        with self.scheduler(most) as address, connected(address) as client, probe_in(self.folder) as probe:
            wait_for_a_worker(client, watcher)
            refuse_unfit_machines(client, probe)
            return Coordinator(client, probe, watcher).train(source)

    def scheduler(self, most: int) -> AbstractContextManager[str]:
        """Give the scheduler's address; for local:N, start N workers first, or `most` if these are fewer."""
        if not self.is_local:
            return nullcontext(self.address)
        return local_workers(max(1, min(int(self.address.removeprefix(LOCAL)), most)))


class Coordinator:
    """Hands out runs, and passes on what is heard of them."""

    def __init__(self, client: Client, probe: Probe, watcher: PlanWatcher) -> None:
        self.client, self.probe, self.watcher = client, probe, watcher
        self.topic = f"ccp-{uuid4().hex}"
        self.inbox: SimpleQueue[dict[str, Any] | Future] = SimpleQueue()  # filled by threads of the client
        self.given: dict[str, Given] = {}  # runs that are not over yet, by name
        self.workers = Workers(client)

    def train(self, source: Iterator[PlannedRun]) -> list[Failure]:
        failures: list[Failure] = []
        self.client.subscribe_topic(self.topic, lambda event: self.inbox.put(event[1]))
        try:
            is_exhausted = False
            while not is_exhausted or self.given:
                while not is_exhausted and len(self.given) < self.workers.places:
                    run = next(source, None)
                    is_exhausted = run is None
                    if run is not None:
                        self.give(run)
                if self.given:
                    failures += self.hear()
                elif not is_exhausted:
                    wait_for_a_worker(self.client, self.watcher)
                    self.workers.count()
                self.workers.count_now_and_then()
        finally:
            self.client.cancel([given.future for given in self.given.values()])
            self.client.unsubscribe_topic(self.topic)
        return failures

    def give(self, run: PlannedRun) -> None:
        run = replace(run, folder=run.folder.resolve())
        order = Order(run.name, run.folder, pickle.dumps(run), self.topic, self.probe, self.workers.by_host)
        wants_gpu = self.workers.have_gpus and run.config.run.device in ("auto", "cuda")
        future = self.client.submit(
            supervise,
            order,
            key=f"{self.topic}-{run.name}",
            pure=False,
            retries=RETRIES,
            resources={GPU: 1} if wants_gpu else None,
        )
        self.given[run.name] = Given(run, future)
        future.add_done_callback(self.inbox.put)

    def hear(self) -> list[Failure]:
        """Act on the next thing that is heard, if there is any; return the failures it tells of."""
        try:
            heard = self.inbox.get(timeout=1.0)
        except Empty:
            return []
        if isinstance(heard, Future):
            given = self.given.pop(str(heard.key).removeprefix(f"{self.topic}-"))
            self.started(given)  # the watcher should know every run that ends
            failure = conclude(given.run, outcome_of(heard), self.watcher)
            return [] if failure is None else [failure]
        if (known := self.given.get(heard["run"])) is not None:  # else it ended before this was heard
            self.pass_on(known, heard)
        return []

    def pass_on(self, given: "Given", heard: dict[str, Any]) -> None:
        match heard["kind"]:
            case "started" if given.is_started:
                self.watcher.note(f"{given.run.name}: goes on at {heard['host']}, as its process or worker was lost")
            case "started":
                self.started(given)
            case "progress":
                self.watcher.progress(given.run, heard["step"], heard["best"])
            case "evaluated":
                goes_on = self.watcher.goes_on(given.run, heard["step"], heard["score"])
                Queue(heard["answers"], client=self.client).put(goes_on)

    def started(self, given: "Given") -> None:
        if not given.is_started:
            given.is_started = True
            self.watcher.started(given.run)


@dataclass
class Given:
    """A run in the hands of the cluster."""

    run: PlannedRun
    future: Future
    is_started: bool = False


@dataclass
class Workers:
    """Counts the workers of a cluster."""

    client: Client
    places: int = 0  # runs that can be trained at once
    by_host: dict[str, int] = field(default_factory=dict)
    have_gpus: bool = False
    counted: float = 0.0

    def __post_init__(self) -> None:
        self.count()

    def count(self) -> None:
        """Count the places: a GPU each where workers have GPUs, a thread of a worker each elsewhere."""
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        gpus = {address: int(worker["resources"].get(GPU, 0)) for address, worker in found.items()}
        self.have_gpus = any(gpus.values())
        by_host: Counter[str] = Counter()
        for address, worker in found.items():
            by_host[host_of(address)] += gpus[address] if self.have_gpus else worker["nthreads"]
        self.places, self.by_host, self.counted = by_host.total(), dict(by_host), time.monotonic()

    def count_now_and_then(self) -> None:
        if time.monotonic() - self.counted > SECONDS_BETWEEN_COUNTS:
            self.count()


def outcome_of(future: Future) -> Outcome:
    """Read how a run ended. A mistake comes as an outcome, a lost machine as an exception."""
    if future.status == "cancelled":
        raise UserError("The scheduler has gone, and with it all workers; start it again, then repeat the command.")
    if future.status == "finished":
        return future.result()
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Failed("several workers died while they trained it, often because memory ran out", True)
    if isinstance(error, MachineFailure):
        return Failed(str(error), True)
    return Failed(f"{type(error).__name__}: {error}", True)


@contextmanager
def local_workers(count: int) -> Iterator[str]:
    """Start a scheduler and workers on this machine, CUDA devices going round; all end with the block."""
    devices = torch.cuda.device_count()
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,  # children hold the memory
                "dashboard": False,
                "silence_logs": logging.ERROR,
                "env": {"CUDA_VISIBLE_DEVICES": str(number % devices)} if devices else {},
                "resources": {GPU: 1} if devices else {},
            },
        }
        for number in range(count)
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.ERROR) as cluster:
        yield cluster.scheduler_address


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to a scheduler."""
    try:
        client = Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise UserError(
            f"--cluster {address}: no scheduler answers there ({first_line(error)}); start one with `dask scheduler`, "
            "or give local:N for workers of this machine."
        ) from None
    with client:
        yield client


def wait_for_a_worker(client: Client, watcher: PlanWatcher) -> None:
    """Wait until the cluster has a worker: in a queue that may take hours."""
    if client.nthreads():
        return
    watcher.note("No worker has joined the cluster; waiting for the first.")
    client.wait_for_workers(1)


def refuse_unfit_machines(client: Client, probe: Probe) -> None:
    """Raise if a machine cannot train runs: better now than after hours. Machines that join later check themselves."""
    one_per_host = {host_of(address): address for address in client.nthreads()}
    try:
        found = client.run(name_and_missing, probe, workers=list(one_per_host.values()))
    except ModuleNotFoundError as error:
        raise UserError(f"A worker cannot load {error.name}; install ccp-dml[cluster] on every machine.") from None
    for host, missing in found.values():
        if problem := missing or probe.missing_of(host):
            raise UserError(problem)
