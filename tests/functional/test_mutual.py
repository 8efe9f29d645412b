"""Shortlists from half of the products, against all products; what is made of them: test_neighbours."""

import pytest
import torch

from ccp_dml.functional.mutual import most_wanted, mutual_shortlists

COLUMNS = 256


def factors(points):
    """Right factors in blocks (blocks, COLUMNS, D + 2), filled up with items that are infinitely far."""
    count, dim = points.shape
    rows = torch.cat([points, torch.ones(count, 1), -points.square().sum(1, keepdim=True) / 2], dim=1)
    filling = torch.zeros(-count % COLUMNS, dim + 2)
    filling[:, -1] = -torch.inf
    return torch.cat([rows, filling]).view(-1, COLUMNS, dim + 2)


def all_products(points):
    products = -torch.cdist(points.double(), points.double()).square() / 2
    return products.fill_diagonal_(-torch.inf)


@pytest.mark.parametrize(
    "count", [COLUMNS, 700, 900]
)  # one block, three blocks, four, of which half meet the other half
def test_everything_near_the_kth_is_listed_and_nobody_is_their_own_neighbour(count):
    draw = torch.Generator().manual_seed(count)
    points = torch.randn(count, 5, generator=draw)
    k = torch.randint(0, most_wanted(COLUMNS) + 1, (count,), generator=draw)
    found = mutual_shortlists(factors(points), k, torch.full((count,), 1e-3))
    assert not found.given_up.any()
    products = all_products(points)
    for item in range(count):
        others = found.others[found.items == item]
        if k[item] == 0:
            assert len(others) == 0
            continue
        wanted = products[item].topk(int(k[item])).indices
        assert set(wanted.tolist()) <= set(others.tolist())
        assert item not in others
        assert len(others.unique()) == len(others)
        assert len(others) < 40, "a shortlist is short"


def test_products_belong_to_their_pairs_and_items_ascend():
    points = torch.randn(300, 4, generator=torch.Generator().manual_seed(3))
    found = mutual_shortlists(factors(points), torch.full((300,), 2), torch.full((300,), 1e-3))
    assert (found.items.diff() >= 0).all()
    torch.testing.assert_close(
        found.products.double(), all_products(points)[found.items, found.others], atol=1e-4, rtol=0
    )


def test_items_with_very_many_equals_are_given_up_and_no_others():
    count, equal = 2 * COLUMNS, 400
    points = torch.randn(count, 3, generator=torch.Generator().manual_seed(5)) * 100
    points[:equal] = 1000.0  # far from all others, whose neighbours are each other
    found = mutual_shortlists(factors(points), torch.full((count,), 2), torch.full((count,), 1e-3))
    assert found.given_up[:equal].all()
    assert not found.given_up[equal:].any()
