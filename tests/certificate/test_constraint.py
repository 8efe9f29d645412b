import math

import pytest
import torch

from ccp_dml.certificate.constraint import (
    Constraint,
    at_threshold,
    of_loss,
    with_alpha,
    with_given,
)
from ccp_dml.errors import UserError
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss


def test_the_margins_of_c2_are_beta_minus_and_plus_alpha():
    constraint = of_loss(ContrastiveLoss(0.2, 1.0))
    assert (constraint.beta, constraint.alpha) == pytest.approx((0.6, 0.4))
    assert constraint.margins() == pytest.approx((0.2, 1.0))


def test_equal_margins_leave_no_alpha_to_divide_by():
    assert of_loss(ContrastiveLoss(0.5, 0.5)).alpha is None
    assert of_loss(CosineContrastiveLoss(1.0)) is None, "at distance zero there is nothing to separate"


@pytest.mark.parametrize("margin", [-1.0, 0.0, 0.5, 0.9])
def test_the_margin_of_c1_is_a_distance_of_unit_vectors(margin):
    """At the distance from which negatives cost nothing, unit vectors have the margin as their similarity."""
    near, far = of_loss(CosineContrastiveLoss(margin)).margins()
    assert near == pytest.approx(0, abs=1e-7)  # positives always cost something
    assert 1 - far**2 / 2 == pytest.approx(margin)


@pytest.mark.parametrize("angle", [0.2, 0.9, 1.4])
@pytest.mark.parametrize("same", [True, False])
def test_the_losses_are_the_terms_of_their_constraints(angle, same):
    """One pair of unit vectors: the loss is (y(v - beta') + alpha)_+."""
    pair = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    labels = torch.tensor([0, 0 if same else 1])
    distance = torch.dist(pair[0], pair[1])
    sign = 1 if same else -1
    for constraint, loss in (
        (of_loss(ContrastiveLoss(0.3, 0.9)), ContrastiveLoss(0.3, 0.9)),
        (of_loss(CosineContrastiveLoss(0.5)), CosineContrastiveLoss(0.5)),
    ):
        term = max(0.0, sign * (float(constraint.scaled(distance)) - constraint.scaled_beta) + constraint.alpha)
        # C1 adds up both directions and divides by the two anchors, C2 takes the mean of both.
        assert float(loss(pair, labels)) == pytest.approx(term)


def test_what_is_given_goes_before_what_the_loss_has():
    own = of_loss(ContrastiveLoss(0.2, 1.0))
    assert with_given(own, None, None) == own
    assert with_given(own, 0.5, None).alpha == pytest.approx(0.4)
    assert with_given(own, 0.3, None).alpha == 0.3  # alpha may not be larger than beta
    assert with_given(own, 0.3, 0.1).margins() == pytest.approx((0.2, 0.4))
    assert with_given(own, None, 0.1).margins() == pytest.approx((0.5, 0.7))
    assert with_given(None, None, 0.1) is None
    assert with_given(None, 0.3, None) == Constraint(0.3, None, "distance", "as given")
    moved = with_given(of_loss(CosineContrastiveLoss(0.5)), 0.5, None)
    assert (moved.scale, moved.alpha) == ("half squared distance", pytest.approx(0.125))
    assert at_threshold(0.4, 0.01).alpha is None


@pytest.mark.parametrize("beta", [-0.1, 0.0, 2.5])
def test_a_beta_that_no_distance_reaches_is_refused(beta):
    with pytest.raises(UserError, match=rf"beta = {beta:g} is out of range.*between 0 and 2"):
        with_given(None, beta, None)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 0.41])
def test_an_alpha_that_bounds_nothing_is_refused(alpha):
    with pytest.raises(UserError, match=rf"alpha = {alpha:g} is out of range.*beta is 0.4"):
        with_alpha(at_threshold(0.4, 0.01), alpha)
