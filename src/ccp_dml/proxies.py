"""Class proxies, and how they are chosen out of a pool (Algorithm 2 of the paper)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError, no_tensor
from ccp_dml.foundation.mapped import MappedFiles
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.functional.distances import NORMALISERS, l2_normalise, pairwise_distances
from ccp_dml.functional.geometry import mean_distance_within
from ccp_dml.functional.kcenter import covering_radius, first_picks, greedy_k_center
from ccp_dml.functional.row_gradients import as_rows

Space = Literal["raw", "normalised"]
ProxyLength = Literal["embedded", "unit"]

NUMBERS_OF_A_CHUNK = 1 << 26
"""A pool of more numbers (256 MB in single precision) is embedded and chosen from chunk by chunk."""


class ClassProxies(nn.Module):
    """Trainable representatives of every class (rho in the paper): one parameter `vectors` (C, P, D).

    With `slots`, P is a mean: there is room for so many proxies of a class, `vectors` is (C, slots, D), and C*P of them
    are in use, more where classes need more; see `share_out`.

    They are stored as the network embeds, un-normalised; the loss normalises them, and the gradient flows through (D7).
    Calling the module gives them as a reference set for any loss: `loss(embeddings, labels, *proxies())`.

    Args:
        classes, per_class, dim: C, P and D.
        length: "embedded" places proxies as long as the network embeds. "unit" shortens or stretches them to length 1:
            a step of the optimiser then turns them equally far, whatever the scale of the network's embeddings (D31).
        slots: the largest number of proxies of a class; None: every class has P.
        normalise: as the loss does it to them; what is measured in normalised space is measured there.
        gradient_by_rows: give the few proxies that a loss feels a sparse gradient; for `RowAdam` and many classes.
        holders: processes that share the proxies: each has those of its own range of the classes, and C counts these.
            A loss must know about it: `loss(embeddings, labels, *proxies(), holders)`.
    """

    labels: Tensor
    used: Tensor

    def __init__(
        self,
        classes: int,
        per_class: int,
        dim: int,
        length: ProxyLength = "embedded",
        slots: int | None = None,
        *,
        normalise: str = "clip",
        gradient_by_rows: bool = False,
        holders: Processes = ALONE,
    ) -> None:
        super().__init__()
        if length not in get_args(ProxyLength) or normalise not in NORMALISERS:
            raise ValueError(
                f"length must be one of {', '.join(get_args(ProxyLength))}, and normalise one of "
                f"{', '.join(NORMALISERS)}; got {length!r} and {normalise!r}"
            )
        if min(classes, per_class, dim) < 1:
            raise ValueError(
                "there is at least one class, one proxy of each and one dimension, "
                f"got {classes}, {per_class} and {dim}"
            )
        if slots is not None and slots < per_class:
            raise ValueError(f"{slots} slots do not hold the {per_class} proxies that a class has in the mean")
        self.classes, self.per_class, self.length, self.slots = classes, per_class, length, slots
        self.normalise, self.gradient_by_rows, self.holders = normalise, gradient_by_rows, holders
        self.own = holders.share_of(classes)
        room = per_class if slots is None else slots
        numbers = torch.arange(classes)[self.own]
        self.vectors = nn.Parameter(torch.zeros(len(numbers), room, dim))
        self.register_buffer("labels", numbers.repeat_interleave(room), persistent=False)
        if slots is not None:  # (C*P,), the places in use among C*slots
            if holders.count > 1:
                raise ValueError("proxies that need is to share out cannot be divided among processes")
            self.register_buffer("used", torch.arange(classes * per_class))
        self.placed = False  # whether the proxies stand for their classes yet
        self.files: MappedFiles | None = None  # where proxies and their copies lie; None: in memory

    def forward(self) -> tuple[Tensor, Tensor]:
        """Give the proxies as references (C*P, D) with their labels (C*P,)."""
        rows = as_rows(self.vectors) if self.gradient_by_rows else self.vectors.flatten(0, 1)
        return (rows, self.labels) if self.slots is None else (rows[self.used], self.labels[self.used])

    @torch.no_grad()
    def choose_from(
        self,
        pool: Tensor | Iterable[Tensor],
        previous: Tensor | None,
        space: Space = "raw",
        generator: torch.Generator | None = None,
        processes: Processes = ALONE,
    ) -> "Selection":
        """Choose new places for the proxies by greedy k-center, class by class (Algorithm 2).

        Args:
            pool: embeddings (C, b, D) of freshly drawn training images, un-normalised. Or chunks (c, b, D) of it in the
                order of the classes, of which one at a time is in memory; `holders` give those of their own classes.
            previous: the previous problem's proxies (C, P, D), which the new ones should be far from; None at first
                (D5).
            space: where distances are measured (D6): the un-normalised embeddings, or the loss's normalised ones.
            generator: draws the first pick when there is no previous set.
            processes: share the work of choosing from a pool that each of them has whole; all get all proxies.
        """
        most = self.per_class if self.slots is None else self.slots
        if self.slots is not None and not isinstance(pool, Tensor):
            pool = torch.cat(list(pool))  # who needs how many is known when all have been seen
        if isinstance(pool, Tensor):
            refuse_odd_pool(pool, most)
            classes, sharing, own = len(pool), processes, processes.share_of(len(pool))
            chunks: Iterable[Tensor] = [pool[own]]
            previous = None if previous is None else previous[own]
        else:
            classes, sharing, own, chunks = self.classes, self.holders, self.own, pool
        place = NORMALISERS[self.normalise] if space == "normalised" else torch.Tensor.detach
        first, stop = None, 0
        vectors = torch.empty(0)  # (c, P, D) of all own classes; joining those of chunks would hold them twice
        found: list[tuple[Tensor, Tensor]] = []
        for chunk in chunks:
            refuse_odd_pool(chunk, most)
            if first is None:
                first = first_picks(classes, chunk.shape[1], generator)[own]  # drawn for all, whoever chooses
                vectors = chunk.new_empty(len(first), most, chunk.shape[2])
            here = slice(stop, stop + len(chunk))
            stop = here.stop
            if stop > len(first):
                raise ValueError(
                    f"the pool's chunks hold {stop} classes or more, but there are proxies of {len(first)}"
                )
            before = None if previous is None else place(previous[here].to(chunk.device))
            taken = greedy_k_center(place(chunk), before, most, first=first[here])
            vectors[here] = rows_at(chunk, taken)
            found.append((taken, self._covering_radii(chunk, vectors[here])))
        if stop != own.stop - own.start:
            raise ValueError(f"the pool's chunks hold {stop} classes, but there are proxies of {own.stop - own.start}")
        taken, radii = (sharing.gather_rows(each, vectors.device) for each in zip(*found, strict=True))
        if not isinstance(pool, Tensor):
            return Selection(vectors, taken, float(radii.mean()))
        if self.slots is not None:
            return self._by_need(pool, taken)
        return Selection(rows_at(pool, taken), taken, float(radii.mean()))

    def _by_need(self, pool: Tensor, taken: Tensor) -> "Selection":
        """Keep C*P of the points `taken` (C, slots) of a pool, more where the covering radius is large."""
        counts = share_out(radii_of_first(NORMALISERS[self.normalise](pool), taken), len(pool) * self.per_class)
        is_meant = torch.arange(taken.shape[1], device=pool.device) < counts.unsqueeze(1)
        taken = torch.where(is_meant, taken, taken[:, :1])
        vectors = rows_at(pool, taken)
        return Selection(vectors, taken, float(self._covering_radii(pool, vectors).mean()), counts)

    def _covering_radii(self, pool: Tensor, vectors: Tensor) -> Tensor:
        """Measure how well proxies placed at `vectors` (C, P, D) cover a pool (C, b, D): radii (C,)."""
        normalised = NORMALISERS[self.normalise]
        return covering_radius(normalised(pool), normalised(at_length(vectors, self.length)))

    @torch.no_grad()
    def place(self, vectors: Tensor, counts: Tensor | None = None) -> None:
        """Move the proxies to `vectors` (C, P, D), in place: the optimiser goes on owning the same parameter.

        With slots, the first `counts` (C,) of each class are in use, C*P in all.
        """
        if vectors.shape != self.vectors.shape:
            given, own = (" x ".join(map(str, shape)) for shape in (vectors.shape, self.vectors.shape))
            raise UserError(
                f"{given} vectors (classes x proxies x dimensions) do not fit {own} proxies: the pool must hold every "
                "class once, in the order of the labels 0, 1, ..., as the network embeds it."
            )
        self.vectors.copy_(at_length(vectors, self.length))
        if self.slots is not None:
            if counts is None:
                raise ValueError("proxies with slots need `counts`: how many of them each class uses")
            in_use = torch.arange(self.slots, device=counts.device) < counts.unsqueeze(1)
            self.used.copy_(in_use.flatten().nonzero().squeeze(1))
        self.placed = True

    def present(self) -> Tensor:
        """Copy the proxies (C, P, D) as they are now. A slot that is not in use repeats its class's first proxy."""
        vectors = self.vectors.detach()
        vectors = vectors.clone() if self.files is None else self.files.copy(vectors)
        if self.slots is not None:
            unused = ~self._in_use()
            vectors[unused] = vectors[:, :1].expand_as(vectors)[unused]
        return vectors

    def lie_in(self, files: MappedFiles) -> None:
        """Move the proxies into a file, and their later copies, too: there may be more than memory is free."""
        self.files, self.vectors.data = files, files.copy(self.vectors)

    def look_up(self, table: Tensor, positions: Tensor) -> Tensor:
        """Look up rows (n, D) of a copy of the proxies, or of themselves, at `positions` (n,) among those of all."""
        room = table.shape[1]
        here = (positions >= self.own.start * room) & (positions < self.own.stop * room)
        rows = table.new_zeros(len(positions), table.shape[2])
        rows[here] = table.detach().flatten(0, 1)[positions[here] - self.own.start * room]
        return self.holders.total(rows)  # each row is zero but for the process that has it

    def spread(self) -> float:
        """Measure the mean distance between proxies of a class, in normalised space: 0 if they coincide."""
        if self.slots is None:
            if self.per_class == 1:
                return 0.0  # a single proxy is near itself
            own = mean_distance_within(self.vectors.detach(), NORMALISERS[self.normalise])
            weight = len(self.vectors) / self.classes
            return float(self.holders.total(torch.tensor(own * weight, dtype=torch.float64)))
        placed, in_use = NORMALISERS[self.normalise](self.vectors.detach()), self._in_use()
        pairs = in_use.unsqueeze(1) & in_use.unsqueeze(2)
        pairs.diagonal(dim1=1, dim2=2).fill_(False)
        return float((pairwise_distances(placed, placed) * pairs).sum() / pairs.sum().clamp(min=1))

    def _in_use(self) -> Tensor:
        """Mark the slots (C, slots) in use."""
        marks = torch.zeros(len(self.labels), dtype=torch.bool, device=self.labels.device)
        return marks.index_fill(0, self.used, True).unflatten(0, self.vectors.shape[:2])

    def get_extra_state(self) -> dict[str, bool]:
        return {"placed": self.placed}

    def set_extra_state(self, state: dict[str, bool]) -> None:
        self.placed = state["placed"]


@dataclass(frozen=True)
class Selection:
    """New proxies out of a pool, and how well they cover it."""

    vectors: Tensor  # (C, P, D), un-normalised; of this process's own classes where several share the proxies
    taken: Tensor  # (C, P), which of each class's pool images they are, of all classes
    covering_radius: float  # mean over classes of the largest distance to the nearest proxy, normalised space
    counts: Tensor | None = None  # (C,), how many of them are meant; the others repeat the first. None: all


def refuse_odd_pool(pool: Tensor, most: int) -> None:
    """Raise unless a pool, or a chunk of one, is (C, b, D), and up to `most` proxies of a class can be chosen in it."""
    if not isinstance(pool, Tensor) or pool.dim() != 3:
        given = f"one of shape {tuple(pool.shape)}" if isinstance(pool, Tensor) else f"a {type(pool).__name__}"
        raise ValueError(
            f"a pool is a tensor (classes, images, dimensions), or an iterator of such tensors, not {given}"
        )
    if pool.shape[1] < most:
        raise ValueError(
            f"the pool holds {pool.shape[1]} images of each class, from which {most} proxies cannot be chosen: embed "
            "more images, or have fewer proxies"
        )


def radii_of_first(pool: Tensor, taken: Tensor) -> Tensor:
    """Measure the covering radii (C, n) that the first 1, 2, ... n of the points `taken` (C, n) leave of a pool."""
    distances = pairwise_distances(pool, rows_at(pool, taken))  # (C, b, n)
    return distances.cummin(dim=2).values.amax(dim=1)


def share_out(radii: Tensor, total: int) -> Tensor:
    """Give each class one proxy, then each further one to the class whose radius is largest: counts (C,) of `total`.

    `radii` (C, n) are what 1, 2, ... n proxies leave of a class, which never grows: so the largest radii of all decide.
    """
    classes, most = radii.shape
    largest = radii[:, :-1].flatten().argsort(descending=True, stable=True)[: total - classes]
    return 1 + torch.bincount(largest // (most - 1), minlength=classes)


def at_length(vectors: Tensor, length: ProxyLength) -> Tensor:
    """Give embeddings (..., D) the length at which proxies are stored."""
    return l2_normalise(vectors) if length == "unit" else vectors


def rows_at(pool: Tensor, taken: Tensor) -> Tensor:
    """Look up the points (C, n, D) of a pool (C, b, D) at the positions `taken` (C, n)."""
    return pool.gather(1, taken.unsqueeze(-1).expand(-1, -1, pool.shape[-1]))


def pool_size(pool_per_class: int, proxies_per_class: int) -> int:
    """Count the images per class of a pool, from the setting b and the number of proxies P (D9)."""
    if pool_per_class == 1:
        return proxies_per_class  # nothing to choose among: P random picks
    if pool_per_class < proxies_per_class:
        return pool_per_class * proxies_per_class
    return pool_per_class


def classes_at_once(numbers: int, size: int, dim: int, batch_size: int) -> int:
    """Count the classes of a chunk of a pool with about so many `numbers`, `size` images of each class.

    It is a multiple of the number of images embedded at once, so that chunks consist of whole batches.
    """
    return max(1, numbers // (size * dim * batch_size)) * batch_size


def draw_pool(labels: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw `size` random images of each class: rows (C, size) of a data set with `labels` (N,) in 0..C-1.

    Drawn without replacement until a class is used up; a class smaller than `size` then starts over (D8, D9), so
    that its images come again under fresh augmentation.
    """
    if not isinstance(labels, Tensor):
        raise UserError(f"{no_tensor('labels', labels)}.")
    labels = labels.cpu()  # where `generator` draws
    refuse_gaps(labels)
    shuffled = torch.randperm(len(labels), generator=generator, device="cpu")
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]  # rows grouped by class, in random order
    counts = torch.bincount(labels)
    starts = counts.cumsum(0) - counts
    turns = torch.arange(size, device="cpu").unsqueeze(0) % counts.unsqueeze(1)  # (C, size)
    return by_class[starts.unsqueeze(1) + turns]


def refuse_gaps(labels: Tensor) -> None:
    """Raise unless `labels` (N,) are whole numbers 0..C-1 and every class has an item."""
    remedy = "number them: labels = torch.unique(labels, return_inverse=True)[1]"
    is_number = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if labels.ndim != 1 or not is_number or not len(labels):
        raise UserError(f"labels must be whole numbers (N,), not {tuple(labels.shape)} of {labels.dtype}: {remedy}.")
    found = torch.unique(labels)
    if int(found[0]) != 0 or int(found[-1]) != len(found) - 1:
        raise UserError(
            f"labels must be 0 to C-1 without a gap, and these are {len(found)} classes between {int(found[0])} and "
            f"{int(found[-1])}, which do not say which proxies are theirs: {remedy}."
        )
