"""What a run cost: time per step, what evaluations and reselections took of it, memory."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import mean
from typing import Self

from ccp_dml.records.run_folder import RunFolder, number


@dataclass(frozen=True)
class Cost:
    """Of one run; None where it was not recorded. Times are seconds, memory bytes."""

    steps: float | None
    seconds: float | None
    seconds_to_best: float | None
    evaluation: float | None  # seconds
    reselection: float | None  # seconds
    process_memory: float | None
    device_memory: float | None

    @classmethod
    def of(cls, run: RunFolder) -> Self:
        last = run.metrics[-1] if run.metrics else {}
        memory = (run.result or {}).get("peak_memory") or {}
        return cls(
            steps=last.get("step"),
            seconds=number(last.get("seconds")),
            seconds_to_best=number((run.best_evaluation() or {}).get("seconds")),
            evaluation=number(last.get("evaluation_seconds")),
            reselection=number(last.get("reselection_seconds")),
            process_memory=number(memory.get("process")),
            device_memory=number(memory.get("device")),
        )

    @classmethod
    def mean(cls, costs: Sequence[Self]) -> Self:
        """Of a run in the mean, as far as all of them recorded it."""
        values = {one.name: [getattr(cost, one.name) for cost in costs] for one in fields(cls)}
        return cls(**{name: None if None in known else mean(known) for name, known in values.items()})

    @property
    def training(self) -> float | None:
        """Seconds of the steps alone; None where evaluations were not timed apart."""
        if self.seconds is None or self.evaluation is None or self.reselection is None:
            return None
        return max(0.0, self.seconds - self.evaluation - self.reselection)

    @property
    def seconds_per_step(self) -> float | None:
        """Of the steps alone or, where that is not known, with everything between them."""
        spent = self.seconds if self.training is None else self.training
        return spent / self.steps if spent is not None and self.steps else None

    def share(self, part: float | None) -> float | None:
        return part / self.seconds if part is not None and self.seconds else None

    def shares(self) -> dict[str, float]:
        """Where the time went, in the order of a bar; empty where it was not recorded."""
        parts = {"steps": self.training, "evaluation": self.evaluation, "reselection": self.reselection}
        found = {name: share for name, part in parts.items() if (share := self.share(part)) is not None}
        return found if len(found) == len(parts) else {}


def ratio(value: float | None, first: float | None) -> float | None:
    """How many times as much as the first run."""
    return value / first if value is not None and first else None
