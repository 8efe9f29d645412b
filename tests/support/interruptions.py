"""Ways to interrupt a training in the middle."""

from ccp_dml.runs.watcher import Watcher


class StopAfter(Watcher):
    """Interrupts the run as soon as it has taken so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def step(self, step):
        if step == self.steps:
            raise KeyboardInterrupt
