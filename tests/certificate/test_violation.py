"""Embeddings whose violation probability is known in closed form, and intervals that must cover it."""

import math
from statistics import NormalDist

import pytest
import torch
from scipy import stats

from ccp_dml.certificate.constraint import Constraint, of_loss
from ccp_dml.certificate.distance_law import pair_laws, threshold_grid
from ccp_dml.certificate.violation import clopper_pearson, draw_independent, measure_violations, quantile_interval
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss

BETA = 0.3
ROUNDS = 300
NOISE = 3 * math.sqrt(0.95 * 0.05 / ROUNDS)  # of a share of ROUNDS that should be 0.95


def violations(points, labels, constraint, seed=0, confidence=0.95):
    grid = threshold_grid(points, constraint.beta, *constraint.margins())
    laws = pair_laws(points, labels, grid, constraint.scaled)
    drawn = draw_independent(points, labels, torch.Generator().manual_seed(seed))
    found = measure_violations(laws, drawn, constraint, confidence)
    return found["misses"], found["false_matches"]


def on_circle(count, generator):
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def test_points_anywhere_on_a_circle():
    """The chord between two uniform points is at most t with probability 2/pi arcsin(t/2)."""
    generator = torch.Generator().manual_seed(0)
    points, labels = on_circle(3000, generator), torch.arange(3000) % 30
    missed, false = violations(points, labels, Constraint(0.8, None, "distance", ""))
    close = 2 / math.pi * math.asin(0.4)
    for violation, expected in ((missed, 1 - close), (false, close)):
        for rate in (violation.by_images, violation.by_classes):
            assert rate.low <= expected <= rate.high
        assert violation.by_images.estimate == pytest.approx(expected, abs=0.01)
        assert violation.bound is None
        assert violation.looseness is None
    assert (missed.by_images.pairs, missed.by_classes.pairs) == (1500, 30)
    assert 1400 < false.by_images.pairs <= 1500
    assert false.by_classes.pairs == 15
    assert missed.all_pairs + false.all_pairs == 3000 * 2999 // 2


def test_two_gaussians():
    """Distances within are |N(0, 2 s^2)|, between |N(g, 2 s^2)|; so are the means of the contrastive terms known."""
    sigma, gap, constraint = 0.1, 0.5, of_loss(ContrastiveLoss(0.0, 2 * BETA))
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4000) % 2
    points = (gap * labels + sigma * torch.randn(4000, generator=generator, dtype=torch.float64)).unsqueeze(1)
    missed, false = violations(points, labels, constraint)
    width = sigma * math.sqrt(2)
    within, between = NormalDist(0, width), NormalDist(gap, width)
    miss_rate = 2 * (1 - within.cdf(BETA))
    false_rate = between.cdf(BETA) - between.cdf(-BETA)
    assert missed.by_images.low <= miss_rate <= missed.by_images.high
    assert false.by_images.low <= false_rate <= false.by_images.high
    mean_distance = width * math.sqrt(2 / math.pi)  # with positive_margin 0 every positive costs its distance
    assert missed.bound == pytest.approx(mean_distance / BETA, rel=0.02)
    assert missed.looseness == pytest.approx(missed.bound / missed.by_images.estimate)
    assert missed.bound > 5 * miss_rate


def interval_points(classes, per_class, generator):
    points = torch.rand(classes * per_class, 1, generator=generator, dtype=torch.float64)
    return points, torch.arange(classes).repeat_interleave(per_class)


def test_independent_pairs_cover_and_all_pairs_do_not():
    """On an interval, |x - y| <= t has probability 2t - t^2, and a point in the middle is close to many others."""
    generator = torch.Generator().manual_seed(0)
    close = 2 * BETA - BETA**2
    covered = {"misses": 0, "false matches": 0, "all pairs": 0}
    for seed in range(ROUNDS):
        points, labels = interval_points(8, 10, generator)
        missed, false = violations(points, labels, Constraint(BETA, None, "distance", ""), seed)
        covered["misses"] += missed.by_images.low <= 1 - close <= missed.by_images.high
        covered["false matches"] += false.by_images.low <= close <= false.by_images.high
        naive = clopper_pearson(round(false.by_images.estimate * false.all_pairs), false.all_pairs, 0.95)
        covered["all pairs"] += naive.low <= close <= naive.high
    shares = {name: count / ROUNDS for name, count in covered.items()}
    assert shares["misses"] >= 0.95 - NOISE
    assert shares["false matches"] >= 0.95 - NOISE
    assert shares["all pairs"] < 0.8  # what counting dependent pairs as independent would claim to be 0.95


def test_a_statement_about_new_classes_needs_independent_classes():
    """Classes at random places: what holds for the images of these classes is too narrow for classes like these."""
    generator = torch.Generator().manual_seed(0)
    spread, sigma, beta = 1.0, 0.05, 0.4
    close = 2 * NormalDist(0, math.sqrt(2 * (spread**2 + sigma**2))).cdf(beta) - 1
    covered = {"by images": 0, "by classes": 0}
    for seed in range(ROUNDS):
        centres = spread * torch.randn(12, 1, generator=generator, dtype=torch.float64)
        labels = torch.arange(12).repeat_interleave(16)
        points = centres[labels] + sigma * torch.randn(len(labels), 1, generator=generator, dtype=torch.float64)
        _, false = violations(points, labels, Constraint(beta, None, "distance", ""), seed)
        covered["by images"] += false.by_images.low <= close <= false.by_images.high
        covered["by classes"] += false.by_classes.low <= close <= false.by_classes.high
    assert covered["by classes"] / ROUNDS >= 0.95 - NOISE
    assert covered["by images"] / ROUNDS < 0.8


def test_unequal_classes_are_covered_for_the_weights_that_the_estimate_has():
    """Small tight classes and a large loose one; the estimate and the interval must mean the same probability."""
    generator = torch.Generator().manual_seed(0)
    sizes, widths = [4, 4, 4, 21], [0.1, 0.1, 0.1, 1.0]
    labels = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    # |x - y| of two uniform points of width w is at least beta with probability (1 - beta/w)^2, none if w <= beta.
    expected = 10 * (1 - BETA) ** 2 / (2 + 2 + 2 + 10)
    covered, estimates = 0, []
    for seed in range(ROUNDS):
        points = torch.tensor(widths)[labels].double() * torch.rand(len(labels), generator=generator).double()
        missed, _ = violations(points.unsqueeze(1), labels, Constraint(BETA, None, "distance", ""), seed)
        covered += missed.by_images.low <= expected <= missed.by_images.high
        estimates.append(missed.by_images.estimate)
    assert covered / ROUNDS >= 0.95 - NOISE
    assert sum(estimates) / ROUNDS == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("inside", [False, True], ids=["unit length", "inside the ball"])
@pytest.mark.parametrize("margins", [(0.0, 0.4), (0.2, 1.0), (0.5, 0.6), None], ids=str)
def test_the_bound_is_never_below_the_probability(margins, inside):
    generator = torch.Generator().manual_seed(0)
    constraint = of_loss(CosineContrastiveLoss(0.5)) if margins is None else of_loss(ContrastiveLoss(*margins))
    for spread in (0.05, 0.3, 1.0):
        centres = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        labels = torch.arange(60) % 6
        points = centres[labels] + spread * torch.randn(60, 4, generator=generator, dtype=torch.float64)
        points = points / points.norm(dim=1, keepdim=True)
        if inside:
            points = points * torch.rand(60, 1, generator=generator, dtype=torch.float64)
        for violation in violations(points, labels, constraint):
            assert violation.bound >= violation.by_images.estimate - 1e-12
            if violation.by_images.estimate > 0:
                assert violation.looseness >= 1 - 1e-9


def test_the_bound_of_c1_is_the_mean_of_its_terms_over_alpha():
    generator = torch.Generator().manual_seed(0)
    points, labels = on_circle(40, generator), torch.arange(40) % 4
    missed, false = violations(points, labels, of_loss(CosineContrastiveLoss(0.5)))
    similarities = points @ points.T
    same = (labels[:, None] == labels[None]) & ~torch.eye(40, dtype=torch.bool)
    different = labels[:, None] != labels[None]
    assert missed.bound == pytest.approx((1 - similarities)[same].clamp(min=0).mean().item() / 0.25)
    assert false.bound == pytest.approx((similarities - 0.5)[different].clamp(min=0).mean().item() / 0.25)


def test_a_set_of_one_class_says_nothing_about_others():
    points = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, false = violations(points, torch.zeros(10, dtype=torch.int64), of_loss(ContrastiveLoss(0.2, 1.0)))
    for rate in (false.by_images, false.by_classes):
        assert (rate.estimate, rate.low, rate.high, rate.pairs) == (None, 0.0, 1.0, 0)
    assert false.bound is None


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
