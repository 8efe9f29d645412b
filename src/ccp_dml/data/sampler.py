"""Class-balanced batches: so many classes, so many images of each."""

import numpy as np
import torch
from torch import Tensor

from ccp_dml.data.representatives import Representatives
from ccp_dml.errors import UserError
from ccp_dml.foundation import randomness


class Decks:
    """Many decks of cards in one array: there may be a million classes, and an object for each would be too much.

    Each is shuffled, dealt, and shuffled anew when it is used up: its cards come equally often.

    Args:
        cards: of all decks (N,), deck after deck.
        sizes: of the decks (C,).
        generator: shuffles them.
    """

    def __init__(self, cards: Tensor, sizes: Tensor, generator: torch.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._sizes, self._starts = sizes.numpy(), (sizes.cumsum(0) - sizes).numpy()
        self._left = np.empty(len(cards), dtype=np.int64)  # the cards of each deck that are still to be dealt
        self._counts = np.zeros(len(sizes), dtype=np.int64)  # how many those are

    def deal(self, deck: int, count: int) -> list[int]:
        """Deal `count` cards of a deck, all different unless it has fewer than that."""
        start, size, left = int(self._starts[deck]), int(self._sizes[deck]), int(self._counts[deck])
        taken = min(count, left)
        hand: list[int] = self._left[start + left - taken : start + left].tolist()
        self._counts[deck] = left - taken
        while missing := count - len(hand):
            cards = self._cards[start : start + size]
            fresh: list[int] = cards[torch.randperm(size, generator=self._generator)].tolist()
            # A hand that spans two decks takes from the new one what it does not hold yet; the others keep their place.
            dealt = sorted(fresh, key=set(hand).__contains__)[:missing]
            hand += dealt
            gone = set(dealt)
            rest = [card for card in fresh if card not in gone]
            self._left[start : start + len(rest)] = rest
            self._counts[deck] = len(rest)
        return hand


class ClassBalancedBatches:
    """Batches of `classes_per_batch` x `images_per_class` row indices, class after class.

    An epoch is a pure function of `(seed, epoch)` and about as long as one pass over the data. Within it, classes are
    dealt from random permutations, so that they come up equally often (give or take one), and the images of a class
    come without replacement until the class is used up. `epoch` and `position` tell which batch comes next, and are all
    of the state.

    With `world_size` processes, each `rank` gets equally many consecutive rows of the same global batch. With
    `representatives`, the first of a class's images in a batch is the one that represents the class at that time.
    """

    def __init__(
        self,
        labels: Tensor,
        classes_per_batch: int,
        images_per_class: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        representatives: Representatives | None = None,
    ) -> None:
        """Plan over `labels` (N,), which are any integers; a row index is a position in them."""
        if labels.dim() != 1 or len(labels) == 0:
            raise ValueError(f"labels must be (rows,), at least one, got shape {tuple(labels.shape)}")
        if classes_per_batch < 1 or images_per_class < 1:
            raise ValueError(
                f"a batch has at least one class and one image of each, got `classes_per_batch`={classes_per_batch} "
                f"and `images_per_class`={images_per_class}"
            )
        classes, counts = labels.unique(return_counts=True)
        if len(classes) < classes_per_batch:
            raise UserError(
                f"`classes_per_batch`={classes_per_batch} needs as many training classes, but there are only "
                f"{len(classes)}: lower it to {len(classes)} or less, or add classes"
            )
        self.classes_per_batch = classes_per_batch
        self.images_per_class = images_per_class
        if self.batch_size % world_size:
            raise UserError(
                f"`classes_per_batch`={classes_per_batch} times `images_per_class`={images_per_class} images cannot be "
                f"shared out equally among {world_size} processes: choose a batch whose size is a multiple of "
                f"{world_size}, or another number of processes"
            )
        self.seed, self.representatives = seed, representatives
        self.epoch = 0
        self.position = 0
        self._classes, self._sizes = classes, counts  # (C,), (C,)
        self._rows_by_class = labels.argsort(stable=True)  # (N,), class after class
        share = self.batch_size // world_size
        self.own = slice(rank * share, (rank + 1) * share)  # this rank's rows of a global batch
        self._length = epoch_length(len(labels), self.batch_size)
        self._planned: tuple[int, Tensor] | None = None

    @property
    def batch_size(self) -> int:
        """Count the rows of a global batch."""
        return self.classes_per_batch * self.images_per_class

    @property
    def small_classes(self) -> dict[int, int]:
        """Find the classes that must repeat images to fill their share of a batch: label -> number of images."""
        small = self._sizes < self.images_per_class
        return dict(zip(self._classes[small].tolist(), self._sizes[small].tolist(), strict=True))

    def __len__(self) -> int:
        """Count the batches in one whole epoch."""
        return self._length

    def batch(self, epoch: int, position: int) -> Tensor:
        """Give this rank's rows (batch_size / world_size,) of the batch at `position` of `epoch`, whichever is next."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, self._plan(epoch)
        rows = self._planned[1][position]
        if self.representatives is not None:
            hands = rows.view(self.classes_per_batch, self.images_per_class)
            rows = self.representatives.lead(hands, epoch * len(self) + position).flatten()
        return rows[self.own]

    def advance(self) -> None:
        """Count the next batch as handed out."""
        self.position += 1
        if self.position == len(self):
            self.epoch += 1
            self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]

    def _plan(self, epoch: int) -> Tensor:
        """Plan all global batches of an epoch (len, classes_per_batch * images_per_class), in O(N)."""
        generator = randomness.generator(self.seed, "batches", epoch)
        count = len(self._sizes)
        classes = Decks(torch.arange(count), torch.tensor([count]), generator)
        images = Decks(self._rows_by_class, self._sizes, generator)
        plan = torch.empty(len(self), self.batch_size, dtype=torch.int64)
        for batch in plan:
            dealt = classes.deal(0, self.classes_per_batch)
            batch.copy_(torch.tensor([row for c in dealt for row in images.deal(c, self.images_per_class)]))
        return plan


def epoch_length(images: int, batch_size: int) -> int:
    """Count the batches of about one pass over so many images."""
    return max(1, images // batch_size)
