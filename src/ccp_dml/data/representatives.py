"""Representatives: one image per class that is in every batch of its class, the same for a whole problem (PROFS)."""

import torch
from torch import Tensor

from ccp_dml.foundation import randomness


class Representatives:
    """One image of each class for so many batches, which are a problem; then the next image of that class.

    Each class goes through its images in a random order of its own and then begins again, so that every image
    represents its class equally often and none does so twice in a row. Who represents a class follows from the seed and
    the number of the batch alone: processes that load batches ahead of time, other ranks and a resumed run agree on it.

    Args:
        labels: of all rows (N,), any integers.
        batches_per_problem: how long a problem lasts.
        seed: decides the orders.
    """

    def __init__(self, labels: Tensor, batches_per_problem: int, seed: int) -> None:
        shuffled = torch.randperm(len(labels), generator=randomness.generator(seed, "representatives"))
        _, self._classes, self._sizes = labels.unique(return_inverse=True, return_counts=True)  # (N,) in 0..C-1, (C,)
        self._order = shuffled[self._classes[shuffled].argsort(stable=True)]  # (N,) rows, class after class
        self._starts = self._sizes.cumsum(0) - self._sizes  # (C,), the first place of each class in the order
        self.batches_per_problem = batches_per_problem

    def problem_of(self, batch: int) -> int:
        """Tell in which problem a batch is; batches are counted from 0, problems from 1."""
        return 1 + batch // self.batches_per_problem

    def rows_of(self, classes: Tensor, problem: int) -> Tensor:
        """Look up the rows (K,) that represent `classes` (K,) in a problem; classes are places in the sorted labels."""
        return self._order[self._starts[classes] + (problem - 1) % self._sizes[classes]]

    def lead(self, hands: Tensor, batch: int) -> Tensor:
        """Put representatives first in the rows (K, k) of a batch, whose K hands are of one class each.

        One that was dealt anyway changes places with the hand's first image; otherwise it replaces that image.
        """
        leaders = self.rows_of(self._classes[hands[:, 0]], self.problem_of(batch)).unsqueeze(1)  # (K, 1)
        others = torch.where(hands == leaders, hands[:, :1], hands)[:, 1:]  # (K, k - 1)
        return torch.cat([leaders, others], dim=1)
