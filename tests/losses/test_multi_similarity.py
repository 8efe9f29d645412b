import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

from ccp_dml.losses import MultiSimilarityLoss

PARAMETERS = [(2.0, 40.0, 0.5), (14.35, 75.83, 0.66)]


@pytest.mark.parametrize(("alpha", "beta", "base"), PARAMETERS)
def test_equals_the_explicit_formula(arguments, rows_of_pairs, alpha, beta, base):
    rows = rows_of_pairs(*arguments)
    total = 0.0
    for row in rows:
        total += math.log(1 + sum(math.exp(-alpha * (s - base)) for same, _, s in row if same)) / alpha
        total += math.log(1 + sum(math.exp(beta * (s - base)) for same, _, s in row if not same)) / beta
    assert MultiSimilarityLoss(alpha, beta, base)(*arguments).item() == pytest.approx(total / len(rows), rel=1e-5)


def test_by_hand():
    slanted = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])  # similarities .6 (positive), 0 and .8 (negative)
    labels = torch.tensor([0, 0, 1])
    pull = 2 * math.log(1 + math.exp(-2 * 0.1)) / 2
    push = math.log(1 + math.exp(-5)) / 10 + math.log(1 + math.exp(3)) / 10
    push += math.log(1 + math.exp(-5) + math.exp(3)) / 10
    loss = MultiSimilarityLoss(alpha=2.0, beta=10.0, base=0.5)
    assert loss(slanted, labels).item() == pytest.approx((pull + push) / 3)


@pytest.mark.parametrize(("alpha", "beta", "base"), PARAMETERS)
def test_agrees_with_pytorch_metric_learning(crowd, alpha, beta, base):
    e, y, r, ry = crowd
    theirs = pml.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)
    ours = MultiSimilarityLoss(alpha, beta, base)
    torch.testing.assert_close(ours(e, y), theirs(e, y), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours(e, y, r, ry), theirs(e, y, ref_emb=r, ref_labels=ry), rtol=1e-5, atol=0)


def test_turns_towards_positives_and_away_from_negatives():
    sample = torch.tensor([[math.sqrt(0.5), math.sqrt(0.5)]], requires_grad=True)
    MultiSimilarityLoss()(sample, torch.tensor([0]), torch.eye(2), torch.tensor([0, 1])).backward()
    assert sample.grad[0, 0] < 0 < sample.grad[0, 1]


def test_does_not_overflow_where_a_plain_exponential_would():
    # Without normalisation similarities reach 400: exp(75.83 * 400) is far beyond float64, too.
    e = torch.tensor([[20.0, 0.0], [-20.0, 0.0], [20.0, 0.0]], requires_grad=True)
    loss = MultiSimilarityLoss(14.35, 75.83, 0.66, normalise="none")(e, torch.tensor([0, 0, 1]))
    loss.backward()
    # Anchors 0 and 1: the positive at -400. Anchors 0 and 2: a negative at 400.
    assert loss.item() == pytest.approx((400.66 + 399.34 + 400.66 + 399.34) / 3, rel=1e-5)
    assert torch.isfinite(e.grad).all()


@pytest.mark.parametrize("parameters", [(0.0, 40.0), (2.0, -1.0)])
def test_refuses_exponents_that_are_not_positive(parameters):
    with pytest.raises(ValueError, match="alpha > 0 and beta > 0"):
        MultiSimilarityLoss(*parameters)
