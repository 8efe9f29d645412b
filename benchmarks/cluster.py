"""What a Dask cluster costs a run: 200 runs of five seconds each on two workers, against the five seconds alone.

The workers, their child processes and everything that they say to each other are real; a child only sleeps instead of
training. What is left is claiming a run's folder, handing it over, progress and result. The first run of each place
waits for its process, too.
"""

import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from side_by_side import Claim, main

SECONDS, SECONDS_WHEN_QUICK = 5.0, 0.5
STAND_IN = "--sleep-instead-of-training"


def sleep_instead_of_training(connection: Connection, *_: object) -> None:
    """Do what a child does with its runs, but for the training."""
    from ccp_dml.plans.messages import Finished, Progress

    seconds = float(sys.argv[2])
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        time.sleep(seconds)
        connection.send(Progress(1, None))
        connection.send(Finished({}))


def let_children_sleep(script: str, seconds: float) -> None:
    """Have this worker start the stand-in instead of the program that trains."""
    from ccp_dml.plans import child

    child.PROGRAM = (script, STAND_IN, str(seconds))


def seconds_of_plan(runs: int, workers: int, seconds: float) -> float:
    """Time a plan of so many runs, of so many `seconds` each."""
    from ccp_dml.config.layers import resolve
    from ccp_dml.plans.cluster import ClusterRunner, connected, local_workers
    from ccp_dml.plans.plan import PlannedRun
    from ccp_dml.plans.runner import PlanWatcher

    config = resolve(["glyphs", "c2"], ["run.device=cpu"]).config
    with TemporaryDirectory() as name, local_workers(workers) as address:
        with connected(address) as client:
            client.run(let_children_sleep, str(Path(__file__).resolve()), seconds)
        plan = [PlannedRun(f"run{number}", Path(name) / str(number), (), (), config) for number in range(runs)]
        started = time.monotonic()
        failures = ClusterRunner(address, Path(name)).train(iter(plan), runs, PlanWatcher())
        assert not failures, failures[:1]
        return time.monotonic() - started


def measure(quick: bool) -> list[Claim]:
    runs, workers, seconds = (20, 2, SECONDS_WHEN_QUICK) if quick else (200, 2, SECONDS)
    taken = seconds_of_plan(runs, workers, seconds) * workers / runs
    return [
        Claim(
            "Runs on a Dask cluster, time",
            f"{runs} runs of {seconds:g} s on {workers} workers",
            [(seconds, taken)],
            ours="a run alone",
            theirs="a run of the plan",
            at_most=(seconds + 1) / seconds,
            note="At most: what an overhead of a second per run comes to.",
        )
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == [STAND_IN]:
        from ccp_dml.plans import child

        sys.modules["ccp_dml.plans.worker"] = SimpleNamespace(work_alone=sleep_instead_of_training)  # type: ignore[assignment]
        child.main()
    else:
        main(__doc__, measure)
