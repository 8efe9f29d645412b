"""Shortlists of the nearest others of all items at once, from half of the products: d(i, j) is d(j, i).

Items lie in blocks. The product of two blocks is looked at twice: along its rows, for the items of the one, and along
its columns, for those of the other. An item keeps what is at least its cut: the k-th largest product that it has seen,
less a slack for rounding. Blocks meet in rounds: each with itself, then with the next, the one after it, and so on. So
every item sees new ones in every round, and cuts rise quickly: an item keeps some k ln(rounds) others in all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.functional.distances import without_autocast

_GROUP = 16  # products that share a maximum: only where it reaches the cut, they are looked at one by one
_SPARE = 16  # others beyond the k nearest that may be as near in a block, before an item is given up
_MOST_KEPT = 16  # others that an item may keep in all, per wanted one and spare one


@dataclass(frozen=True)
class Shortlists:
    """Pairs of an item and one of the others that are near it, in ascending order of items."""

    items: Tensor  # (P,)
    others: Tensor  # (P,)
    products: Tensor  # (P,)
    given_up: Tensor  # (N,), whether too many others were nearly as near as the k-th


def most_wanted(columns: int) -> int:
    """Find the largest k that `mutual_shortlists` takes, where blocks have `columns` items."""
    return columns // (2 * _GROUP)


@torch.no_grad()
def mutual_shortlists(right: Tensor, k: Tensor, slack: Tensor) -> Shortlists:
    """Find, for every item, all others whose product is at most `slack` (N,) less than the `k`-th (N,) largest.

    Args:
        right: all items as right factors (blocks, columns, D + 2) of products, filled up after the N-th with items
            whose last entry is minus infinity. Left factors have their last two entries exchanged.
        k: how many others an item wants, at most `most_wanted`; 0: it wants none.
        slack: by how much a k-th largest product, less rounding, may be too large.
    """
    blocks, columns, _ = right.shape
    left = torch.cat([right[..., :-2], right[..., -1:], right[..., -2:-1]], dim=2)
    cuts = _Cuts(k, slack, blocks * columns)
    products = right.new_empty(columns, columns)
    found = []
    for step in range(blocks // 2 + 1):
        now = []
        for one in range(blocks // 2 if 0 < 2 * step == blocks else blocks):
            other = (one + step) % blocks
            mine, theirs = one * columns, other * columns
            with without_autocast(right.device):
                torch.mm(left[one], right[other].T, out=products)
            if step == 0:
                products.fill_diagonal_(-torch.inf)  # nobody is their own neighbour (D24)
            grouped = products.view(columns, _GROUP, -1)
            now.append(_kept(grouped, grouped.amax(dim=1), cuts, mine, theirs))
            if step > 0:
                grouped = products.view(_GROUP, -1, columns)
                now.append(_kept(grouped.permute(2, 0, 1), grouped.amax(dim=0).T, cuts, theirs, mine))
        pairs = _sorted_by_item(*(torch.cat(parts) for parts in zip(*now, strict=True)))
        cuts.rise(pairs[0], pairs[2])
        found.append(pairs)
    items, others, products = (torch.cat(parts) for parts in zip(*found, strict=True))
    last = (products >= cuts.cut[items]).nonzero().squeeze(1)  # cuts have risen since most were found
    return Shortlists(*_sorted_by_item(items[last], others[last], products[last]), cuts.given_up)


class _Cuts:
    """The product that each item asks for, rising with what it has seen."""

    def __init__(self, k: Tensor, slack: Tensor, length: int) -> None:
        self.k, self.slack = k, slack
        self.deepest = int(k.max())
        self.given_up = torch.zeros_like(k, dtype=torch.bool)
        self.best = slack.new_full((len(k), self.deepest), -torch.inf)
        self.kept = torch.zeros_like(k)
        self.cut = slack.new_full((length,), torch.inf)  # nothing is enough for those who want nothing
        self.cut[: len(k)][k > 0] = -torch.inf

    def rise(self, items: Tensor, products: Tensor) -> None:
        """Take note of `products` (P,) with their `items` (P,), ascending."""
        counts = torch.bincount(items, minlength=len(self.k))
        self.kept += counts
        self.give_up(self.kept > _MOST_KEPT * (self.k + _SPARE))
        turn = torch.arange(len(items), device=items.device) - (counts.cumsum(0) - counts)[items]
        table = self.best.new_full((len(self.k), min(int(counts.max()), 4 * self.deepest)), -torch.inf)
        some = turn < table.shape[1]  # a part of them is enough for a cut that is right, if not as high as it could be
        table[items[some], turn[some]] = products[some]
        self.best = torch.cat([self.best, table], dim=1).topk(self.deepest, dim=1).values
        last = self.best.gather(1, (self.k - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        wanting = (self.k > 0) & ~self.given_up
        self.cut[: len(self.k)] = torch.where(wanting, last - self.slack, torch.inf)

    def give_up(self, hopeless: Tensor) -> None:
        self.given_up |= hopeless
        self.cut[: len(self.k)][self.given_up] = torch.inf


def _kept(products: Tensor, maxima: Tensor, cuts: _Cuts, first: int, other: int) -> tuple[Tensor, Tensor, Tensor]:
    """List items, others and products (P,) of what reaches the cut in `products` (items, group, groups).

    `maxima` (items, groups) are those of the groups. The items are those from `first` on, the others from `other` on.
    """
    cut = cuts.cut[first : first + len(maxima)]
    k = cuts.k[first : first + len(maxima)]
    if len(k) < len(maxima):  # items that only fill up the last block
        k = torch.cat([k, k.new_zeros(len(maxima) - len(k))])
    if bool(torch.isneginf(cut).any()):  # nothing seen yet: of k groups each has one that reaches the k-th maximum
        slack = torch.cat([cuts.slack[first : first + len(maxima)], maxima.new_zeros(len(maxima))])[: len(maxima)]
        kth = maxima.topk(max(1, int(k.max())), dim=1).values.gather(1, (k - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        cut = torch.maximum(cut, kth - slack)
    passing = maxima >= cut.unsqueeze(1)
    crowded = passing.sum(1) > k + _SPARE
    if bool(crowded.any()):
        hopeless = torch.zeros_like(cuts.given_up)
        hopeless[first : first + len(maxima)] = crowded[: len(hopeless) - first]
        cuts.give_up(hopeless)
        passing &= ~crowded.unsqueeze(1)
    item, group = passing.nonzero().unbind(1)
    members = products[item, :, group]  # (passing, group)
    place, member = (members >= cut[item].unsqueeze(1)).nonzero().unbind(1)
    others = member * products.shape[2] + group[place] + other
    return item[place] + first, others, members[place, member]


def _sorted_by_item(items: Tensor, others: Tensor, products: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    items, order = items.sort(stable=True)
    return items, others[order], products[order]
