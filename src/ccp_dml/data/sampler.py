"""Class-balanced batches: so many classes, so many images of each."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ccp_dml.errors import UserError
from ccp_dml.foundation import randomness


class Deck:
    """Deals cards from a shuffled deck and shuffles all of them anew when it is used up: each comes equally often."""

    def __init__(self, cards: list[int], generator: torch.Generator) -> None:
        self._cards = cards
        self._generator = generator
        self._left: list[int] = []

    def deal(self, count: int) -> list[int]:
        """Deal `count` cards, all different unless the deck has fewer than that."""
        hand = self._left[-count:]
        del self._left[-count:]
        while missing := count - len(hand):
            fresh = [self._cards[i] for i in torch.randperm(len(self._cards), generator=self._generator).tolist()]
            # A hand that spans two decks takes from the new one what it does not hold yet; the others keep their place.
            dealt = sorted(fresh, key=set(hand).__contains__)[:missing]
            hand += dealt
            taken = set(dealt)
            self._left = [card for card in fresh if card not in taken]
        return hand


class ClassBalancedBatches:
    """Batches of `classes_per_batch` x `images_per_class` row indices, class after class.

    An epoch is a pure function of `(seed, epoch)` and about as long as one pass over the data. Within it, classes are
    dealt from random permutations, so that they come up equally often (give or take one), and the images of a class
    come without replacement until the class is used up. Iterating yields what is left of the current epoch and moves
    on to the next one, so that a restored state goes on with exactly the batch that would have come.

    With `world_size` processes, each `rank` gets equally many consecutive rows of the same global batch.
    """

    def __init__(
        self,
        labels: Tensor,
        classes_per_batch: int,
        images_per_class: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Plan over `labels` (N,), which are any integers; a row index is a position in them."""
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
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._class_ids: list[int] = classes.tolist()
        self._rows_of_class = [rows.tolist() for rows in labels.argsort(stable=True).split(counts.tolist())]
        share = self.batch_size // world_size
        self.own = slice(rank * share, (rank + 1) * share)  # this rank's rows of a global batch
        self._length = max(1, len(labels) // self.batch_size)
        self._planned: tuple[int, Tensor] | None = None

    @property
    def batch_size(self) -> int:
        """Count the rows of a global batch."""
        return self.classes_per_batch * self.images_per_class

    @property
    def small_classes(self) -> dict[int, int]:
        """Find the classes that must repeat images to fill their share of a batch: label -> number of images."""
        sizes = zip(self._class_ids, map(len, self._rows_of_class), strict=True)
        return {label: size for label, size in sizes if size < self.images_per_class}

    def __len__(self) -> int:
        """Count the batches in one whole epoch."""
        return self._length

    def __iter__(self) -> Iterator[Tensor]:
        """Yield what is left of the epoch, batches of (batch_size / world_size,) rows."""
        epoch = self.epoch
        while self.epoch == epoch:
            rows = self.batch(epoch, self.position)
            self.advance()
            yield rows

    def batch(self, epoch: int, position: int) -> Tensor:
        """Give this rank's rows of the batch at `position` of `epoch`, wherever the iteration stands."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, self._plan(epoch)
        return self._planned[1][position, self.own]

    def advance(self) -> None:
        """Count the current batch as handed out."""
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
        classes = Deck(list(range(len(self._rows_of_class))), generator)
        images = [Deck(rows, generator) for rows in self._rows_of_class]
        return torch.tensor(
            [
                [row for c in classes.deal(self.classes_per_batch) for row in images[c].deal(self.images_per_class)]
                for _ in range(len(self))
            ]
        )
