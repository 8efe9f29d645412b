"""Ends of processes, in processes of their own."""

import subprocess
import sys

PROGRAM = """
import signal, sys, threading, time
from ccp_dml.foundation import leaving

leaving.SECONDS_TO_TIDY = 0.2
def tidy(*_):
    print("tidied", flush=True)
    if {listens}:
        sys.exit(3)
signal.signal(signal.SIGTERM, tidy)
threading.Thread(target=leaving.leave_soon, daemon=True).start()
time.sleep(60)
"""


def test_the_main_thread_may_tidy_up_but_not_stay():
    for listens, code in ((True, 3), (False, 1)):
        ended = subprocess.run([sys.executable, "-c", PROGRAM.format(listens=listens)], capture_output=True, text=True)
        assert (ended.stdout, ended.returncode) == ("tidied\n", code)
