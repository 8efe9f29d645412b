import math
from itertools import pairwise

import pytest
import torch

from ccp_dml.certificate.distance_law import pair_laws, threshold_grid
from ccp_dml.certificate.thresholds import equal_error, threshold_for, trade_off


def laws_of(points, labels):
    return pair_laws(points, labels, threshold_grid(points))


@pytest.fixture
def clusters():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(400) % 20
    return centres[labels] + 0.8 * torch.randn(400, 6, generator=generator, dtype=torch.float64), labels


@pytest.mark.parametrize("wanted", [0.001, 0.01, 0.2])
def test_the_threshold_keeps_to_the_wanted_rate_and_no_larger_one_does(clusters, wanted):
    points, labels = clusters
    beta = threshold_for(laws_of(points, labels).different_by_images, wanted)
    apart = torch.cdist(points, points)[labels[:, None] != labels[None]]
    realised = (apart <= beta).double().mean().item()
    assert realised <= wanted
    step = float(threshold_grid(points)[1])
    assert (apart <= beta + 1.001 * step).double().mean().item() > wanted


def test_a_threshold_in_closed_form():
    """Uniform on an interval, 2t - t^2 of the pairs are closer than t."""
    points = torch.rand(3000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    beta = threshold_for(laws_of(points, torch.arange(3000) % 30).different_by_images, 0.19)
    assert beta == pytest.approx(0.1, abs=0.003)


def test_duplicates_of_different_classes_leave_no_threshold_but_zero():
    points = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    assert threshold_for(laws_of(points, torch.tensor([0, 1, 0, 1])).different_by_images, 0.1) == 0.0


def test_the_curve_is_monotone_and_keeps_to_its_rates(clusters):
    rates = [0.0005, 0.01, 0.1, 0.5, 1.0]
    curve = trade_off(laws_of(*clusters), rates)
    assert [point.wanted for point in curve] == rates
    for point in curve:
        assert point.reached.false_match_rate <= point.wanted * (1 + 1e-9)
    curve = [point.reached for point in curve]
    for before, after in pairwise(curve):
        assert before.beta <= after.beta
        assert before.false_match_rate <= after.false_match_rate
        assert before.miss_rate >= after.miss_rate
    assert (curve[-1].false_match_rate, curve[-1].miss_rate) == (1.0, 0.0)
    assert curve[0].miss_rate > 0.5 > curve[3].miss_rate


def test_rates_that_so_few_pairs_cannot_show_are_left_out():
    points = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    laws = laws_of(points, torch.arange(10) % 2)  # 25 pairs of different classes
    assert len(trade_off(laws, [0.01, 0.03, 0.04, 0.5])) == 2


def test_equal_error_of_two_gaussian_classes():
    """Distances are about |N(0, 2 s^2)| and N(g, 2 s^2): the rates meet where 2(1 - F(t)) = F(t - g)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2000) % 2
    points = (0.6 * labels + 0.1 * torch.randn(2000, generator=generator, dtype=torch.float64)).unsqueeze(1)
    point = equal_error(laws_of(points, labels))
    assert point.false_match_rate == pytest.approx(point.miss_rate, abs=2e-3)
    tail = math.erfc(point.beta / 0.2)  # 2(1 - F(beta / (s sqrt 2)))
    assert point.miss_rate == pytest.approx(tail, abs=0.005)


def test_one_class_has_neither_threshold_nor_curve():
    laws = laws_of(torch.rand(5, 2).double(), torch.zeros(5, dtype=torch.int64))
    assert threshold_for(laws.different_by_images, 0.1) is None
    assert trade_off(laws) == []
    assert equal_error(laws) is None
