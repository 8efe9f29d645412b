"""When to stop waiting for a better score. Counted in evaluations, never in steps or epochs (D3)."""

from dataclasses import asdict, dataclass
from math import inf
from typing import Any


@dataclass
class Patience:
    """Used up after `limit` evaluations in a row without a gain of at least `min_improvement`; None waits for ever."""

    limit: int | None
    min_improvement: float = 1e-5
    best: float = -inf
    to_beat: float = -inf
    waited: int = 0

    def observe(self, score: float) -> bool:
        """Count one evaluation; True if it is the best so far, be it by ever so little."""
        if score >= self.to_beat + self.min_improvement:
            self.to_beat, self.waited = score, 0
        else:
            self.waited += 1
        is_best = score > self.best
        self.best = max(self.best, score)
        return is_best

    @property
    def used_up(self) -> bool:
        return self.limit is not None and self.waited >= self.limit

    def restart(self) -> None:
        """Begin anew, as for the next problem: earlier scores no longer count."""
        self.best, self.to_beat, self.waited = -inf, -inf, 0

    def state_dict(self) -> dict[str, Any]:
        state = asdict(self)
        return {name: state[name] for name in ("best", "to_beat", "waited")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.to_beat, self.waited = state["best"], state["to_beat"], state["waited"]
