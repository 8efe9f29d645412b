"""What a process that trains and the process that started it say to each other.

This file imports neither torch nor the parts of a run: processes that only pass messages on start quickly.
"""

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccp_dml.records.ownership import Ownership

if TYPE_CHECKING:
    from ccp_dml.plans.plan import PlannedRun


KILLED = 9  # SIGKILL, which Windows has no name for


@dataclass(frozen=True)
class Share:
    """What one of several workers may use of the machine."""

    workers: int
    threads: int
    device: str | None  # None: as each run's configuration says


@dataclass(frozen=True)
class Assignment:
    """A run to train, or to go on with. It stays packed until it is trained: what it holds takes seconds to import."""

    packed_run: bytes
    ownership: Ownership | None = None  # of runs that may be given to another machine meanwhile

    def run(self) -> "PlannedRun":
        return pickle.loads(self.packed_run)  # a process that this one was started by, or starts, packed it


@dataclass(frozen=True)
class Progress:
    step: int
    best: float | None  # validation MAP@R so far


@dataclass(frozen=True)
class Evaluated:
    """A supervised run asks whether to go on."""

    step: int
    score: float  # validation MAP@R


@dataclass(frozen=True)
class Stopped:
    """A supervised run was told not to go on."""


@dataclass(frozen=True)
class Finished:
    result: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    message: str
    is_unexpected: bool = False  # neither the user nor the numbers are to blame; the process may be in disorder


Outcome = Finished | Failed | Stopped
Message = Progress | Evaluated | Outcome


def how_it_died(exit_code: int | None) -> str:
    if exit_code == -KILLED:
        return (
            "its process was killed, often because memory ran out; end other programs, or train fewer runs at once, "
            "then run the command again"
        )
    cause = f"by signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"with exit code {exit_code}"
    return f"its process ended {cause}; run the command again to go on"
