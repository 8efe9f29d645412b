"""Start the process that trains for a worker of a cluster, and be that process: `python -m ccp_dml.plans.child`.

Workers of Dask may not start processes of `multiprocessing`, so this one is started as a program. The two talk over a
`Connection` that needs a key to open. The key comes over standard input, which stays open as long as the starter lives:
however the starter ends, also by SIGKILL, the child reads the end of its input and leaves.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path

from ccp_dml.foundation.leaving import leave_soon
from ccp_dml.plans.messages import Assignment, Share

PROGRAM = ("-m", "ccp_dml.plans.child")

IDLE_SECONDS = 30.0
"""A child without a run leaves after so long, and gives back its memory: the cluster may be there for weeks."""

SECONDS_TO_LEAVE = 5.0


@dataclass(frozen=True)
class Place:
    """Where a child trains: its share of the machine, and the folder that relative paths start from."""

    share: Share
    folder: Path


class Child:
    """The starter's end of a process that trains one run after the other."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, *PROGRAM],
            cwd=place.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        key = secrets.token_bytes(32)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already: the next line tells
            print(json.dumps({"key": key.hex(), "share": asdict(place.share)}), file=self.process.stdin, flush=True)
        address = self.process.stdout.readline().strip()
        if not address:
            raise ChildProcessError(f"the process that trains did not start (exit code {self.process.wait()})")
        self.connection: Connection = Client(address, authkey=key)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def give(self, assignment: Assignment) -> None:
        self.connection.send(assignment)

    def next_message(self, timeout: float) -> object | None:
        """Wait for what the child says; None if it says nothing. Raises EOFError when it is gone."""
        if not wait([self.connection], timeout):
            return None
        try:
            return self.connection.recv()
        except OSError:
            raise EOFError from None

    def exit_code(self) -> int:
        """Wait until the process has ended; negative: the signal that ended it."""
        return self.process.wait(SECONDS_TO_LEAVE)

    def end(self) -> None:
        """End the process, in good order where that is quick."""
        self.process.terminate()
        try:
            self.process.wait(SECONDS_TO_LEAVE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.connection.close()


def main() -> None:
    """Open a connection for the starter, tell where it is, and train what comes."""
    given = json.loads(sys.stdin.readline())
    threading.Thread(target=leave_with_starter, daemon=True).start()
    with Listener(authkey=bytes.fromhex(given["key"])) as listener:
        print(listener.address, flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads further lines
        connection = listener.accept()

    from ccp_dml.plans.worker import work_alone  # takes seconds: the starter should not wait for its address

    work_alone(connection, Share(**given["share"]), IDLE_SECONDS)


def leave_with_starter() -> None:
    """End this process when its standard input ends."""
    sys.stdin.read()
    leave_soon()


if __name__ == "__main__":
    main()
