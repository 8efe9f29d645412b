import math

import pytest
import torch
from scipy import stats

from ccp_dml.certificate.violation import clopper_pearson, quantile_interval


def test_the_ends_put_exactly_the_tails_beyond_what_was_seen():
    interval = clopper_pearson(3, 40, 0.9)
    assert stats.binom.sf(2, 40, interval.low) == pytest.approx(0.05)
    assert stats.binom.cdf(3, 40, interval.high) == pytest.approx(0.05)


def test_nothing_seen_is_no_proof_of_nothing():
    assert clopper_pearson(0, 30, 0.95).low == 0.0
    assert clopper_pearson(0, 30, 0.95).high == pytest.approx(1 - 0.025 ** (1 / 30))
    assert clopper_pearson(30, 30, 0.95).high == 1.0
    assert clopper_pearson(0, 0, 0.95) == clopper_pearson(0, 0, 0.6)  # from nothing, everything is possible


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("probability", [0.004, 0.07, 0.5])
def test_coverage_is_never_below_what_is_promised(probability, confidence):
    """Exactly, by adding up the binomial: no simulation needed."""
    draws = 60
    covered = 0.0
    for hits in range(draws + 1):
        interval = clopper_pearson(hits, draws, confidence)
        if interval.low <= probability <= interval.high:
            covered += stats.binom.pmf(hits, draws, probability)
    assert covered >= confidence


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.1])
def test_draws_of_unequal_probability_are_covered_at_least_as_well(spread):
    """Classes differ; the sum of unequal draws, whose law is a convolution, is covered around its mean probability."""
    probabilities = [0.1 - spread] * 20 + [0.1 + spread] * 20
    law = [1.0]
    for p in probabilities:
        law = [a * (1 - p) + b * p for a, b in zip([*law, 0.0], [0.0, *law], strict=True)]
    missed = 0.0
    for hits, chance in enumerate(law):
        interval = clopper_pearson(hits, len(probabilities), 0.95)
        if not interval.low <= 0.1 <= interval.high:
            missed += chance
    assert missed <= 0.05


def test_the_interval_of_a_quantile_covers_it():
    generator = torch.Generator().manual_seed(0)
    rounds, covered, too_high = 600, 0, 0
    for _ in range(rounds):
        interval = quantile_interval(torch.rand(200, generator=generator).square(), 0.1, 0.9)
        covered += interval.low <= 0.01 <= interval.high  # the 0.1 quantile of a squared uniform variable
        too_high += interval.low > 0.01
    slack = 3 * math.sqrt(0.9 * 0.1 / rounds)
    assert covered / rounds >= 0.9 - slack
    assert covered / rounds <= 0.9 + 0.04 + slack  # not by being needlessly wide
    assert too_high / rounds <= 0.05 + slack


def test_too_few_values_leave_an_end_open():
    values = torch.arange(10.0)
    assert quantile_interval(values, 0.01, 0.95).low is None
    assert quantile_interval(values, 0.99, 0.95).high is None
    assert quantile_interval(values, 0.99, 0.95).low == 8.0
    nothing = quantile_interval(values[:0], 0.5, 0.95)
    assert nothing.low is None
    assert nothing.high is None


@pytest.mark.parametrize("confidence", [0.5, 1.0, 95])
def test_confidence_is_a_fraction_above_one_half(confidence):
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 2, confidence)
    with pytest.raises(ValueError, match="confidence"):
        quantile_interval(torch.zeros(1), 0.5, confidence)


def test_more_hits_than_draws_are_refused():
    with pytest.raises(ValueError, match="3 draws"):
        clopper_pearson(4, 3, 0.95)
