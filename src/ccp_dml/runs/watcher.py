"""How a run keeps its user informed."""

from typing import Any

from ccp_dml.config.schema import Config


class Watcher:
    """What a run tells while it goes on. This one keeps quiet; the command line shows progress."""

    def note(self, text: str) -> None:
        """Something the user should know: small classes, files left out, where a resumed run goes on."""

    def extracting(self, done: int, total: int) -> None:
        """A frozen backbone has seen so many images, of so many; views of one image count as several."""

    def start(self, config: Config, step: int) -> None:
        """Training begins, or goes on at `step`."""

    def step(self, step: int) -> None:
        """So many steps have been taken."""

    def evaluation(self, row: dict[str, Any], best: float) -> None:
        """A line of the log, and the best validation MAP@R so far."""

    def finishing(self) -> None:
        """Training is over; the test half is being scored."""

    def finished(self, result: dict[str, Any]) -> None:
        """The run is complete; what result.json holds."""
