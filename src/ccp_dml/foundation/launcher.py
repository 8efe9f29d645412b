"""Start the processes that train one network together on this machine, with torch's own launcher."""

import os
from collections.abc import Sequence

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from ccp_dml.foundation.machine import usable_cores
from ccp_dml.foundation.modes import quiet

INTERRUPTED = 130


def run_together(module: str, arguments: Sequence[str], processes: int, max_restarts: int = 0) -> int:
    """Run `python -m module arguments` in so many processes that find each other; return one exit code for all.

    It is what `torchrun --standalone` does, but for its log: the processes say themselves what goes wrong. The exit
    code is that of a process that failed for a reason of its own. When one dies, all are started again, up to
    `max_restarts` times.
    """
    # torchrun would give each process one thread, to be on the safe side.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    options = ["--standalone", f"--nproc-per-node={processes}", f"--max-restarts={max_restarts}", "--module", module]
    with quiet("torch.distributed.elastic"):
        try:
            torchrun.run(torchrun.parse_args([*options, *arguments]))
        except ChildFailedError as failed:
            codes = [failure.exitcode for failure in failed.failures.values()]  # below 0: a signal ended it
            # Which of them was first, torch cannot tell when it looks too late. Those that lost another end with 1.
            return next((code for code in codes if code > 1), 1)
        except SignalException:
            return INTERRUPTED
    return 0
