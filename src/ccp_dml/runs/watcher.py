"""What a run reports while it goes on."""

from typing import Any

from ccp_dml.config.schema import Config


class Watcher:
    """Is told how a run goes. This one ignores everything; the command line's shows progress."""

    def note(self, text: str) -> None:
        """Hear something the user should know: small classes, files left out, where a resumed run goes on."""

    def extracting(self, done: int, total: int) -> None:
        """Hear that a frozen backbone has done so many images of so many; each view of an image counts."""

    def reading_test(self, done: int, total: int) -> None:
        """Hear that so many test images of so many have been read once, before training: its end needs them."""

    def start(self, config: Config, step: int) -> None:
        """Hear that training begins, or goes on at `step`."""

    def before_training(self, row: dict[str, Any]) -> None:
        """Get the line of step 0: how the network scores on validation before its first step."""

    def step(self, step: int) -> None:
        """Hear how many steps have been taken."""

    def evaluation(self, row: dict[str, Any], best: float) -> None:
        """Get a line of the log, and the best validation MAP@R so far."""

    def finishing(self) -> None:
        """Hear that training is over and the test half is being scored."""

    def finished(self, result: dict[str, Any]) -> None:
        """Hear that the run is complete; `result` is what result.json holds."""
