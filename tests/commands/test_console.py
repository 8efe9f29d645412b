import os
import signal

import pytest

from ccp_dml.commands.console import take_termination_as_interrupt


def test_a_kill_ends_a_command_as_ctrl_c_does():
    before = signal.getsignal(signal.SIGTERM)
    try:
        take_termination_as_interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
