"""When a problem ends: validation has stalled, its steps are used up, or its proxies are stale or left behind."""

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from ccp_dml.functional.distances import NORMALISERS

KEEPS_UP = 0.5  # proxies that move this part of what their images move, or more, follow the network by learning


@dataclass
class Patience:
    """Used up after `limit` evaluations in a row without a gain of `min_improvement` or more; None waits for ever."""

    limit: int | None
    min_improvement: float = 1e-5
    best: float = -inf
    to_beat: float = -inf
    waited: int = 0

    def __post_init__(self) -> None:
        if (self.limit is not None and self.limit < 1) or not self.min_improvement >= 0:
            raise ValueError(
                f"patience lasts one evaluation or more, and an improvement is not negative; got {self.limit} and "
                f"{self.min_improvement}"
            )

    def observe(self, score: float) -> bool:
        """Count one evaluation; True if it is the best so far, be it by ever so little."""
        if score > self.to_beat and score >= self.to_beat + self.min_improvement:
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
        return {"best": self.best, "to_beat": self.to_beat, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.to_beat, self.waited = state["best"], state["to_beat"], state["waited"]


@dataclass(frozen=True)
class Pace:
    """What ends a problem besides a stall of the validation scores, also between evaluations (D30).

    Proxies stand for images as the network embedded them when they were chosen. The further the network learns, the
    less they do: they are *stale*. How fast that goes depends on learning rate, network and data, so that a number of
    steps that suits one run is far too many for another; staleness relative to the covering radius is comparable.

    Args:
        steps: a problem ends after so many steps. None: however many it takes.
        staleness: a problem ends when the mean distance between proxies and the present embeddings of their images
            exceeds this multiple of the covering radius that the proxies had when they were chosen. None: never.
            A multiple above 1 is hardly ever reached by proxies that are trained until they coalesce.
        behind: a problem ends when its proxies are left behind: the images they were taken from have moved by this
            multiple of the covering radius, and they themselves by less than half as much. Proxies that learn fast
            enough are never left behind, nor are those that every image of a pool became, with a radius of 0. None:
            nobody looks.
        at_least: steps that a problem lasts however stale its proxies are: choosing new ones has a price, too.
        check_every: steps between two looks at the staleness.
    """

    steps: int | None = None
    staleness: float | None = None
    behind: float | None = None
    at_least: int = 0
    check_every: int = 10

    def __post_init__(self) -> None:
        if (self.steps is not None and self.steps < 1) or self.check_every < 1 or self.at_least < 0:
            raise ValueError(
                "a problem lasts one step or more, and so does the time between two looks; got "
                f"steps={self.steps}, at_least={self.at_least}, check_every={self.check_every}"
            )
        for name, multiple in (("staleness", self.staleness), ("behind", self.behind)):
            if multiple is not None and not multiple > 0:
                raise ValueError(f"{name} is a multiple of the covering radius above 0, got {multiple}")

    @property
    def watches_proxies(self) -> bool:
        """Tell whether what proxies do can end a problem, so that somebody must look at them."""
        return self.staleness is not None or self.behind is not None

    def wants_new_proxies(self, drift: "Drift", covering_radius: float) -> bool:
        """Decide by a look at the proxies whether their problem is over."""
        stale = self.staleness is not None and drift.staleness > self.staleness * covering_radius
        moved = self.behind is not None and drift.of_embeddings > self.behind * covering_radius > 0
        return stale or (moved and not drift.proxies_keep_up)


@dataclass(frozen=True)
class Drift:
    """How far proxies and network have moved since the proxies were placed: mean distances in normalised space."""

    staleness: float  # from a proxy to where the network now embeds the image that it was taken from
    of_embeddings: float  # from where a proxy was placed to where the network now embeds its image
    of_proxies: float  # from where a proxy was placed to where training has moved it

    @property
    def proxies_keep_up(self) -> bool:
        """Tell whether proxies follow the network by learning."""
        return self.of_proxies >= KEEPS_UP * self.of_embeddings


@torch.no_grad()
def measure_drift(placed: Tensor, proxies: Tensor, present: Tensor, normalise: str = "clip") -> Drift:
    """Compare proxies as they were `placed` (n, D), as they are now, and the `present` embeddings of their images."""
    placed, proxies, present = map(NORMALISERS[normalise], (placed, proxies, present))

    def mean_distance(a: Tensor, b: Tensor) -> float:
        return float(torch.linalg.vector_norm(a - b, dim=-1).mean())

    return Drift(mean_distance(proxies, present), mean_distance(placed, present), mean_distance(placed, proxies))
