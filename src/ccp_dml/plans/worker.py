"""Run in a worker process: train one planned run after the other, and tell the parent how they go."""

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from ccp_dml.config.schema import Config, DataConfig
from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.loading import auto_workers
from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.foundation.leaving import leave_soon
from ccp_dml.foundation.locks import alone_in
from ccp_dml.foundation.machine import LESS_MEMORY, keep_freed_memory, out_of_memory
from ccp_dml.plans.messages import Evaluated, Failed, Finished, Progress, Share, Stopped
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.records import layout
from ccp_dml.records.leftovers import sweep
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.ownership import Ownership, TakenOver
from ccp_dml.records.run_folder import is_run
from ccp_dml.runs.datasets import build_data, remember_last
from ccp_dml.runs.frozen import FrozenFeatures
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher

SECONDS_BETWEEN_STEPS_TOLD = 0.5
SECONDS_FOR_A_PREDECESSOR = 60.0
"""The worker of a benchmark that was killed a moment ago may still be finishing its last write."""

SECONDS_BETWEEN_LOOKS_AT_OWNER = 2.0


class StopRun(Exception):
    """Ends a supervised run from within its evaluation."""


def work(parent: Connection, share: Share) -> None:
    """Train until the parent has no more runs, ends this process, or is gone. A worker process runs this."""
    with suppress(KeyboardInterrupt):  # the parent may end this process while it starts
        threading.Thread(target=_leave_with_parent, daemon=True).start()
        work_alone(parent, share)


def work_alone(parent: Connection, share: Share, idle_seconds: float | None = None) -> None:
    """Do the same, where somebody else watches the parent; leave also after `idle_seconds` without a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which then ends us in good order
    signal.signal(signal.SIGTERM, _leave)
    keep_freed_memory()
    torch.set_num_threads(min(share.threads, torch.get_num_threads()))  # OMP_NUM_THREADS may allow fewer
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        serve(parent, share, idle_seconds)
    os._exit(0)  # all files are closed, and with torch loaded Python's own way out takes a second


def serve(parent: Connection, share: Share, idle_seconds: float | None) -> None:
    """Train what the parent sends until it sends None, or nothing for `idle_seconds`."""
    load_data, frozen = remember_last(build_data), FrozenFeatures()
    while parent.poll(idle_seconds) and (task := parent.recv()) is not None:
        outcome = attempt(task.run(), share, load_data, parent, frozen, task.ownership)
        parent.send(outcome)
        if isinstance(outcome, Failed) and outcome.is_unexpected:
            return
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def attempt(
    run: PlannedRun,
    share: Share,
    load_data: Callable[[DataConfig], DataHalves],
    parent: Connection,
    frozen: FrozenFeatures | None = None,
    ownership: Ownership | None = None,
) -> Finished | Failed | Stopped:
    """Train one run, or go on with it; whatever goes wrong becomes a message."""
    try:
        with leaving_when_taken_over(ownership), alone_in(run.folder, SECONDS_FOR_A_PREDECESSOR):
            if ownership is not None:
                ownership.require()  # it may have been taken over while the folder was locked
            logbook, resume = open_folder(run)
            logbook.ownership = ownership
            with output_to(run.folder / layout.LOG):
                config = with_share(run.config, share, load_data(run.config.data))
                reporter = Reporter(parent, asks=run.is_supervised)
                try:
                    result = train(config, logbook, reporter, resume=resume, load_data=load_data, frozen=frozen)
                except StopRun:
                    return Stopped()
                return Finished(result)
    except (UserError, NonFiniteError, TakenOver) as error:
        return Failed(str(error))
    except Exception as error:
        if (told := out_of_memory(error)) is not None:
            fewer = "train fewer runs at once (--workers, or fewer workers of the cluster)"
            return Failed(f"{told}: {fewer if share.workers > 1 else f'{LESS_MEMORY}, with another --out'}", True)
        return Failed(f"{type(error).__name__}: {error}", True)


def open_folder(run: PlannedRun) -> tuple[Logbook, bool]:
    """Open the run's folder, and tell whether there is a run in it to resume."""
    sweep(run.folder, also=(layout.LOG,))
    if not is_run(run.folder):
        return Logbook.open_new(run.folder, run.config, run.command), False
    logbook = Logbook.reopen(run.folder)
    logbook.continue_with(run.config)
    return logbook, True


def with_share(config: Config, share: Share, halves: DataHalves) -> Config:
    """Fit a run to its share of the machine. That is not recorded: a later worker may have another share."""
    changes: dict[str, Any] = {}
    if config.run.workers is None and not config.model.trains_on_features:
        loaders = auto_workers(halves.train.source)
        changes["workers"] = max(1, loaders // share.workers) if loaders else 0
    if share.device is not None and config.run.device in ("auto", "cuda"):
        changes["device"] = share.device
    return config.with_values(run=changes)


@contextmanager
def leaving_when_taken_over(ownership: Ownership | None) -> Iterator[None]:
    """End this process soon after its run was given to another: who comes next waits for the folder's lock."""
    if ownership is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS_AT_OWNER):
            if not ownership.holds():
                leave_soon()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


class Reporter(Watcher):
    """Tells the parent how far the run is, and writes plain lines to the run's log."""

    def __init__(self, parent: Connection, asks: bool) -> None:
        self.parent, self.asks = parent, asks
        self.last_told = 0.0
        self.best: float | None = None

    def note(self, text: str) -> None:
        print(text, flush=True)

    def start(self, config: Config, step: int) -> None:  # noqa: ARG002
        self.tell(step)

    def before_training(self, row: dict[str, Any]) -> None:
        print(f"step 0  MAP@R {row['map_at_r']:.4f} before training", flush=True)

    def step(self, step: int) -> None:
        if time.monotonic() - self.last_told > SECONDS_BETWEEN_STEPS_TOLD:
            self.tell(step)

    def evaluation(self, row: dict[str, Any], best: float) -> None:
        self.best = best
        print(
            f"step {row['step']}  problem {row['problem']}  loss {row['loss']:.4f}  "
            f"MAP@R {row['map_at_r']:.4f} (best {best:.4f})",
            flush=True,
        )
        if self.asks:
            self.parent.send(Evaluated(row["step"], row["map_at_r"]))
            if not self.parent.recv():
                print("Told to stop here.", flush=True)
                raise StopRun

    def finishing(self) -> None:
        print("Scoring the test half ...", flush=True)

    def tell(self, step: int) -> None:
        self.parent.send(Progress(step, self.best))
        self.last_told = time.monotonic()


@contextmanager
def output_to(file: Path) -> Iterator[None]:
    """Append all output of this process to `file`, that of libraries, of an error and of a crash included."""
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    before = [os.dup(stream.fileno()) for stream in streams]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as log:
        for stream in streams:
            os.dup2(log.fileno(), stream.fileno())
    try:
        yield
    except Exception:
        traceback.print_exc()
        raise
    finally:
        for stream, descriptor in zip(streams, before, strict=True):
            stream.flush()
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)


def _leave(*_: Any) -> None:
    raise KeyboardInterrupt


def _leave_with_parent() -> None:
    """End this process when its parent is gone: a killed parent cannot end its workers."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    leave_soon()
