"""Exact nearest neighbours: fast products propose, sums of squared differences decide.

The distance of a query q and a reference r follows from one matrix product, because

    d^2 = |q|^2 + |r|^2 - 2 q.r = -2 (q, -|q|^2 / 2, 1) . (r, 1, -|r|^2 / 2).

In floating point with unit roundoff u and D dimensions, in whatever order it is summed up, d^2 is off by at most

    e = (D + 8) u (|q| + |r|)^2.

So the k nearest are found in two steps. A product proposes a few more references than k, the shortlist. The distances
of the shortlist are then computed again, in float64 from the differences of the vectors, where nothing cancels. If the
k-th of them is less than the best product outside of the shortlist, minus e, no other reference can belong to the k
nearest, and the row is done. Rows that fail this test (there are many ties at the k-th place, or lengths differ by
orders of magnitude) are tried again with a float64 product, whose e is a billion times smaller, and those that fail
this, too, are compared with every distinct reference by differences.

Where items are searched among themselves, products propose for both of a pair at once: see `functional.mutual`.

Distances do not change when all vectors are moved: everything is centred first, so that e is measured by how far the
vectors are spread, not by how far they are from zero. Embeddings of an untrained network lie close together, and far
from zero.

What "exact" means: squared distances are sums of squared differences in float64 (relative error below 1e-13), and two
of them are equal when they agree to 24 bits, the precision of a float32. Of equals the lower index is nearer. Products
and their rounding have no influence on the result. Vectors of very different lengths may be mixed: only where entries
of float64 vectors lie more than 150 orders of magnitude apart do the smallest differences vanish.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from ccp_dml.functional.distances import for_device, without_autocast
from ccp_dml.functional.mutual import Shortlists, most_wanted, mutual_shortlists

_SPARE = 6  # places of a shortlist beyond the k nearest, for near-ties at the k-th place
_COLUMNS = 1024  # references per product: the result stays in a processor's cache until its maxima are taken
_FEWEST_BLOCKS = 2  # of so many references, before it pays to look at products from both sides
_FEW_QUERIES = 16  # for which preparing the references would take longer than comparing all of them
_TOGETHER = 16  # products between two selections
_CHUNK = 1 << 23  # numbers of a chunk of references in float64: 64 MB
_SAMPLE = 4096  # references whose mean is the centre
_GROUPS = (32, 16, 8, 4)  # how many references share a maximum
_FEW = 4  # a shortlist's groups may hold one in so many references
_DIFFERENCES = {"cpu": 1 << 18, "cuda": 1 << 21}  # numbers per block of differences: of float64, two megabytes
# Pairs of query and reference held at a time in float32 and in float64: a GPU wants large blocks.
_PAIRS = {"cpu": (1 << 23, 1 << 20), "cuda": (1 << 28, 1 << 26)}

# A key holds a squared distance and an index. A float64 that is rounded to 24 bits leaves its low 29 bits empty: the
# index goes there. The bits of non-negative numbers are ordered as the numbers are: keys rank by distance, then index.
_INDEX = (1 << 29) - 1
_ROUNDING_OF_KEYS = 2.0**-24
MOST_REFERENCES = _INDEX


class ExactSearch:
    """Find the nearest references of queries, exactly.

    Args:
        queries: (N, D), finite.
        references: (M, D), finite; None: the queries themselves, where each is left out of its own search by its index
            (D24).
    """

    def __init__(self, queries: Tensor, references: Tensor | None = None) -> None:
        self.own = references is None
        self.queries = queries.detach()
        self.references = self.queries if references is None else references.detach()
        self.available = len(self.references) - int(self.own)
        # Squares of float32 numbers fit into a float64. Those of float64 numbers do when every entry is below 1, and a
        # power of two changes no digit.
        self.scale = self._to_below_one() if torch.float64 in (queries.dtype, self.references.dtype) else 1.0
        self._chunk = max(2 * _COLUMNS, min(64 * _COLUMNS, _CHUNK // self.references.shape[1]))  # references in float64
        self._products: Tensor | None = None
        self._shortlists: Shortlists | None = None
        self._float64: tuple[int, Tensor] | None = None

    def nearest(self, rows: Tensor, k: Tensor, block: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Find at least `k` (Q,) nearest references of each of the queries `rows` (Q,), block by block.

        Yields the rows of a block (q,), distances (q, K) in ascending order and indices (q, K), where K is the largest
        `k` of the block. Rows that had to be tried again come last. `block` is the number of queries handled at a time.
        """
        ways = [self._by_float32_products, self._by_float64_products, self._by_differences]
        if len(rows) * self.references.numel() <= for_device(_DIFFERENCES, rows.device):
            ways = [self._by_all_differences]
        elif len(rows) <= _FEW_QUERIES:
            ways.insert(0, self._by_float32_differences)
        elif self._look_at_each_other(rows, k, block or self._block_size(True)):
            ways.insert(0, self._by_shortlists)
        for find in ways:
            failed = []
            size = block or self._block_size(find in (self._by_shortlists, self._by_float32_products))
            if find == self._by_differences:  # whose tables are as wide as there are references
                size = max(1, min(size, for_device(_PAIRS, rows.device)[1] // len(self.references)))
            for some, depths in zip(rows.split(size), k.split(size), strict=True):
                keys, certain = find(some, int(depths.max()))
                if not bool(certain.all()):
                    failed.append((some[~certain], depths[~certain]))
                    some, keys = some[certain], keys[certain]
                if len(some):
                    squared, indices = _unpacked(keys)
                    yield some, squared.sqrt() / self.scale, indices
            if not failed:
                return
            rows, k = (torch.cat(parts) for parts in zip(*failed, strict=True))

    def _by_all_differences(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, all of them certain; for so few pairs nothing is faster."""
        everyone = torch.arange(len(self.references), device=rows.device).expand(len(rows), -1)
        squared = self._squared_differences(rows, everyone)
        return self._ranked(rows, squared, everyone, k), torch.ones_like(rows, dtype=torch.bool)

    def _by_float32_differences(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, and which rows (Q,) of them are certain.

        For a few queries nothing needs to be prepared. Where nothing cancels, errors are relative to the distance.
        """
        width = min(k + int(self.own) + _SPARE, len(self.references))
        queries, references = self.queries[rows].float(), self.references.float()
        proposed = torch.cdist(queries, references, compute_mode="donot_use_mm_for_euclid_dist")
        proposed, candidates = proposed.topk(width, dim=1, largest=False)
        proposed = proposed.double().mul_(self.scale).square_()
        error = (references.shape[1] + 8) * torch.finfo(torch.float32).eps * proposed[:, -1:]
        squared = self._squared_differences(rows, candidates)
        kept = ((squared - proposed).abs() <= error).all(dim=1)
        keys = self._ranked(rows, squared, candidates, k)
        everything = width == len(self.references)
        return keys, kept if everything else kept & self._none_closer(keys, (proposed[:, -1:] - error).squeeze(1))

    def _look_at_each_other(self, rows: Tensor, k: Tensor, block: int) -> bool:
        """Make shortlists of all queries at once, if they are the references, and if that saves products."""
        if not self.own or 2 * len(rows) < len(self.references) or len(self.references) < _FEWEST_BLOCKS * _COLUMNS:
            return False
        right = self._right_factor_float32
        if int(k.max()) > most_wanted(right.shape[1]):
            return False
        wanted = torch.zeros(len(self.queries), dtype=torch.int64, device=rows.device)
        wanted[rows] = torch.cat([part.amax().expand_as(part) for part in k.split(block)])
        everyone = torch.arange(len(self.queries), device=rows.device).split(self._chunk)
        errors = torch.cat([self._left_factor(part, torch.float32)[1] for part in everyone])
        # A product, which is half a squared distance, is off by half an error, and so is the one it is compared with.
        # As much again is more than the rounding of keys.
        slack = 2.0 * errors * (self._frame[0] / self.scale) ** 2
        self._shortlists = mutual_shortlists(right, wanted, slack.float())
        return len(self._shortlists.items) > 0

    def _by_shortlists(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, and which rows (Q,) of them are certain."""
        assert self._shortlists is not None
        found = self._shortlists
        starts, stops = (torch.searchsorted(found.items, rows, right=right) for right in (False, True))
        counts = stops - starts
        places = torch.arange(max(k, int(counts.max())), device=rows.device)
        real = places < counts.unsqueeze(1)  # (Q, width)
        pairs = torch.where(real, starts.unsqueeze(1) + places, 0)
        candidates = found.others[pairs]
        squared = self._squared_differences(rows, candidates)
        _, error = self._left_factor(rows, torch.float32)
        off = (squared - self._squared(found.products[pairs])).abs()
        kept = ((off <= error.unsqueeze(1)) | ~real).all(dim=1)
        keys = self._ranked(rows, squared.masked_fill_(~real, torch.inf), candidates, k)
        return keys, kept & ~found.given_up[rows] & (counts >= k)

    def _by_float32_products(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, and which rows (Q,) of them are certain.

        Each group of references is represented by its best product. The `width` best references are in the `width` best
        groups: only there, all products are looked at.
        """
        width = k + int(self.own) + _SPARE
        group = self._group_size(width)
        if group is None:
            return rows.new_empty(len(rows), k), torch.zeros_like(rows, dtype=torch.bool)
        left, error = self._left_factor(rows, torch.float32)
        right = self._right_factor_float32
        found = [
            self._best_of(left, right[first : first + _TOGETHER], first, group, width)
            for first in range(0, len(right), _TOGETHER)
        ]
        products, candidates = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        if len(found) > 1:
            products, places = products.topk(width, dim=1)
            candidates = candidates.gather(1, places)
        proposed = self._squared(products)  # (Q, width), ascending
        squared = self._squared_differences(rows, candidates)
        # The bound is a theorem about float32 products. Where a device or a setting uses fewer digits, it shows here.
        kept = ((squared - proposed).abs() <= error.unsqueeze(1)).all(dim=1)
        keys = self._ranked(rows, squared, candidates, k)
        return keys, kept & self._none_closer(keys, proposed[:, -1] - error)

    def _best_of(self, left: Tensor, right: Tensor, first: int, group: int, width: int) -> tuple[Tensor, Tensor]:
        """Find the best references in `right`: products (Q, width), largest first, and indices counted from `first`."""
        (blocks, columns, _), rows = right.shape, len(left)
        across = columns // group
        if self._products is None or len(self._products) < blocks * rows * columns:
            self._products = left.new_empty(blocks * rows * columns)  # fresh memory costs as much as half a product
        products = self._products[: blocks * rows * columns].view(blocks, rows, columns)
        maxima = left.new_empty(rows, blocks, across)
        with without_autocast(left.device):
            for number in range(blocks):
                torch.mm(left, right[number].T, out=products[number])
                maxima[:, number] = products[number].view(rows, group, across).amax(dim=1)
        groups = maxima.flatten(1).topk(min(width, blocks * across), dim=1).indices  # (Q, G)
        members = torch.arange(group, device=left.device) * across
        block, place = groups // across, groups % across
        row = torch.arange(len(left), device=left.device).unsqueeze(1)
        places = ((block * rows + row) * columns + place).unsqueeze(2) + members  # (Q, G, group), in `products`
        best, order = products.flatten()[places.flatten(1)].topk(width, dim=1)
        indices = ((block * columns + place).unsqueeze(2) + members).flatten(1)
        return best, indices.gather(1, order) + first * columns

    def _by_float64_products(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, and which rows (Q,) of them are certain."""
        width = min(k + int(self.own) + _SPARE, len(self.references))
        left, error = self._left_factor(rows, torch.float64)
        error = error.unsqueeze(1)
        shortlists = []
        for start in range(0, len(self.references), self._chunk):
            right = self._right_factor_float64(start)
            squared = self._squared(torch.mm(left, right.T)).clamp_(min=0.0)  # (Q, columns)
            keys = _packed(squared, torch.arange(start, start + len(right), device=rows.device))
            keys = _smallest(keys, min(width, len(right)))
            shortlists.append((keys, squared.gather(1, (keys & _INDEX) - start)))
        keys, proposed = (torch.cat(parts, dim=1) for parts in zip(*shortlists, strict=True))
        if len(shortlists) > 1:
            keys, places = keys.topk(width, dim=1, largest=False)
            proposed = proposed.gather(1, places)
        last, candidates = _unpacked(keys)
        everything = width == len(self.references)
        beyond = torch.full_like(last[:, -1], torch.inf) if everything else last[:, -1] * (1 - _ROUNDING_OF_KEYS)

        # Most products are precise enough to know the 24 bits of the key.
        open_rows, places = (
            (_rounded((proposed - error).clamp_(min=0.0)) != _rounded(proposed + error)).nonzero().unbind(1)
        )
        pairs = rows[open_rows], candidates[open_rows, places].unsqueeze(1)
        proposed[open_rows, places] = self._squared_differences(*pairs).squeeze(1)
        keys = self._ranked(rows, proposed, candidates, k)
        return keys, self._none_closer(keys, beyond - error.squeeze(1))

    def _by_differences(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find keys (Q, k) of the nearest references, all of them certain. Equal references are compared only once."""
        distinct, numbers = self._distinct
        queries = self.queries[rows].double() * self.scale
        distances = torch.cdist(queries, distinct, compute_mode="donot_use_mm_for_euclid_dist")
        squared = distances.square_()[:, numbers]
        indices = torch.arange(len(self.references), device=rows.device).expand_as(squared)
        return self._ranked(rows, squared, indices, k), torch.ones_like(rows, dtype=torch.bool)

    def _squared_differences(self, rows: Tensor, candidates: Tensor) -> Tensor:
        """Measure squared distances (Q, W) of the queries `rows` (Q,) to their `candidates` (Q, W), in float64."""
        squared = torch.empty(candidates.shape, dtype=torch.float64, device=rows.device)
        numbers = for_device(_DIFFERENCES, rows.device)
        size = max(1, numbers // (candidates.shape[1] * self.references.shape[1]))
        for some, indices, to in zip(rows.split(size), candidates.split(size), squared.split(size), strict=True):
            differences = self.references[indices].double()  # (q, W, D)
            differences.sub_(self.queries[some].double().unsqueeze(1))
            if self.scale != 1.0:
                differences.mul_(self.scale)
            to.copy_(differences.square_().sum(dim=2))
        return squared

    def _ranked(self, rows: Tensor, squared: Tensor, candidates: Tensor, k: int) -> Tensor:
        """Rank keys (Q, k) of the nearest `candidates` (Q, W) by their `squared` distances (Q, W), ascending."""
        keys = _packed(squared, candidates)
        if self.own:
            keys.masked_fill_(candidates == rows.unsqueeze(1), torch.iinfo(torch.int64).max)
        return _smallest(keys, k)

    def _none_closer(self, keys: Tensor, bound: Tensor) -> Tensor:
        """Tell whether (Q,) a squared distance of `bound` (Q,) or more is farther than the last of `keys` (Q, k)."""
        last, _ = _unpacked(keys[:, -1])
        return bound * (1.0 - 2.0 * _ROUNDING_OF_KEYS) > last

    def _to_below_one(self) -> float:
        """Find the power of two that makes every entry less than 1."""
        largest = torch.stack([end.double() for part in (self.queries, self.references) for end in part.aminmax()])
        return float(torch.exp2(-torch.frexp(largest.abs().amax()).exponent.double()))

    @cached_property
    def _frame(self) -> tuple[float, Tensor, Tensor]:
        """Find scale and centre (D,) of factors, and the length of the longest reference then."""
        scale = self.scale if self.scale != 1.0 else self._to_below_one()
        sample = self.references[:: max(1, len(self.references) // _SAMPLE)]  # any centre near the mean will do
        centre = (sample.double() * scale).mean(0)
        parts = self.references.split(self._chunk)
        longest = torch.stack([_centred(part, scale, centre).norm(dim=1).amax() for part in parts]).amax()
        return scale, centre, longest

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor]:
        """Find the distinct references (U, D), in float64, and which of them each reference is (M,)."""
        distinct, numbers = torch.unique(self.references, dim=0, return_inverse=True)
        return distinct.double() * self.scale, numbers

    def _squared(self, products: Tensor) -> Tensor:
        """Convert `products` of factors to squared distances, in float64."""
        return products.double() * (-2.0 * (self.scale / self._frame[0]) ** 2)

    def _left_factor(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Make queries (Q, D + 2) factors of products, and bound (Q,) the error of a squared distance."""
        scale, centre, longest = self._frame
        queries = _centred(self.queries[rows], scale, centre)
        lengths = queries.norm(dim=1, keepdim=True)
        factor = torch.cat([queries, -lengths.square() / 2, torch.ones_like(lengths)], dim=1)
        numbers = torch.finfo(dtype)
        error = (queries.shape[1] + 8) * numbers.eps / 2 * (lengths + longest).square_()
        error = error.squeeze(1).add_(factor.shape[1] * numbers.tiny)
        return factor.to(dtype), error * (self.scale / scale) ** 2

    def _right_factor(self, references: Tensor) -> Tensor:
        """Make references (M, D) factors (M, D + 2) of products, in float64."""
        references = _centred(references, *self._frame[:2])
        lengths = references.norm(dim=1, keepdim=True)
        return torch.cat([references, torch.ones_like(lengths), -lengths.square() / 2], dim=1)

    @cached_property
    def _right_factor_float32(self) -> Tensor:
        """Make all references factors (blocks, columns, D + 2), filled up with references that are infinitely far."""
        rows, dimensions = self.references.shape
        blocks = -(-rows // _COLUMNS)
        columns = -(-rows // (blocks * max(_GROUPS))) * max(_GROUPS)  # little is left to fill up
        factor = torch.zeros(blocks * columns, dimensions + 2, dtype=torch.float32, device=self.references.device)
        for start in range(0, rows, self._chunk):
            part = self._right_factor(self.references[start : start + self._chunk])
            factor[start : start + len(part)] = part
        factor[rows:, -1] = -torch.inf
        return factor.view(blocks, columns, dimensions + 2)

    def _right_factor_float64(self, start: int) -> Tensor:
        """Make the chunk of references from `start` on factors (columns, D + 2)."""
        if self._float64 is None or self._float64[0] != start:
            self._float64 = start, self._right_factor(self.references[start : start + self._chunk])
        return self._float64[1]

    def _group_size(self, width: int) -> int | None:
        """Choose how many references share a maximum; None where a shortlist would be a large part of all references.

        Large groups leave fewer maxima to select from, and more members of the selected groups to look at.
        """
        wanted = (len(self.references) / (8 * width)) ** 0.5  # where both cost the same, as measured
        return next(
            (size for size in _GROUPS if (size <= wanted or size == 4) and _FEW * size * width <= len(self.references)),
            None,
        )

    def _block_size(self, float32: bool) -> int:
        pairs = for_device(_PAIRS, self.references.device)[0 if float32 else 1]
        together = min(len(self.references), _TOGETHER * _COLUMNS if float32 else self._chunk)
        return min(max(128, pairs // together), 4096)


def _centred(vectors: Tensor, scale: float, centre: Tensor) -> Tensor:
    return (vectors.double() * scale).sub_(centre)


def _rounded(squared: Tensor) -> Tensor:
    """Take the bits of non-negative float64 numbers, rounded to 24 bits, halves to even."""
    bits = squared.view(torch.int64)
    return ((bits >> 29) & 1).add_(bits).add_((1 << 28) - 1).bitwise_and_(~_INDEX)


def _packed(squared: Tensor, indices: Tensor) -> Tensor:
    return _rounded(squared).bitwise_or_(indices)


def _unpacked(keys: Tensor) -> tuple[Tensor, Tensor]:
    return (keys & ~_INDEX).view(torch.float64), keys & _INDEX


def _smallest(keys: Tensor, k: int) -> Tensor:
    """Select the `k` smallest of each row of `keys` (Q, W), ascending."""
    if keys.device.type != "cpu":
        return keys.topk(k, dim=1, largest=False).values
    array = keys.numpy()  # NumPy partitions and sorts integers several times as fast as torch
    if k < array.shape[1]:
        array.partition(k - 1, axis=1)
    array[:, :k].sort(axis=1)
    return keys[:, :k]
