import pytest
import torch
from pytorch_metric_learning import distances
from pytorch_metric_learning import losses as pml

from ccp_dml.losses import TripletLoss, triplet


@pytest.mark.parametrize("margin", [0.0, 0.0451, 0.5])
def test_equals_the_explicit_formula(arguments, rows_of_pairs, mean_of_non_zero, margin):
    terms = [
        d_ap - d_an + margin
        for row in rows_of_pairs(*arguments)
        for is_positive, d_ap, _ in row
        for is_other, d_an, _ in row
        if is_positive and not is_other
    ]
    assert TripletLoss(margin)(*arguments).item() == pytest.approx(mean_of_non_zero(terms), rel=1e-5)


def dense(distances_ar, positive, negative, margin):
    """The same loss over an explicit (anchors, positives, negatives) cube, for autograd to differentiate."""
    violations = torch.relu(distances_ar.unsqueeze(2) - distances_ar.unsqueeze(1) + margin)
    violations = violations * (positive.unsqueeze(2) & negative.unsqueeze(1))
    return violations.sum() / (violations > 0).sum().clamp(min=1)


@pytest.mark.parametrize("as_anchors", [False, True])
def test_value_and_gradient_equal_the_explicit_cube(crowd, as_anchors):
    e, y, r, ry = crowd
    e, r = e.double().requires_grad_(), r.double().requires_grad_()
    ours = TripletLoss(0.1, references_as_anchors=as_anchors, normalise="none")(e, y, r, ry)
    apart, positive = torch.cdist(e, r), y[:, None] == ry
    if as_anchors:
        apart, positive = apart.T, positive.T
    cube = dense(apart, positive, ~positive, 0.1)
    torch.testing.assert_close(ours, cube)
    for mine, theirs in zip(torch.autograd.grad(ours, (e, r)), torch.autograd.grad(cube, (e, r)), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_ties_violate_nothing_and_count_for_nothing():
    # One anchor at the origin; positives at .25 and .5, negatives at .5, .75, .75: all exact in binary.
    references = torch.tensor([[0.25, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.75], [0.0, -0.75]])
    sample = torch.zeros(1, 2, requires_grad=True)
    given = (sample, torch.tensor([0]), references, torch.tensor([0, 0, 1, 1, 1]))
    assert TripletLoss(0.0)(*given).item() == 0.0  # .5 against .5 is a tie
    # Margin .25: .25 + .25 ties with .5; .5 + .25 beats .5 by .25 and ties with both .75.
    loss = TripletLoss(0.25)(*given)
    assert loss.item() == 0.25
    loss.backward()
    torch.testing.assert_close(sample.grad, torch.tensor([[-1.0, 1.0]]))  # to the positive, away from the negative


def test_by_hand():
    # On a line: positives 0 and .4, negative .3. Anchor 0: .4 - .3 + .05 = .15. Anchor .4: .4 - .1 + .05 = .35.
    line = torch.tensor([[0.0, 0.0], [0.4, 0.0], [0.3, 0.0]])
    assert TripletLoss(0.05)(line, torch.tensor([0, 0, 1])).item() == pytest.approx(0.25)


def test_references_as_anchors_by_hand():
    # The proxy at 0 has its sample at .4 and another class's at .3: .4 - .3 + .05. The samples' view has no triplet:
    # the second has no positive, the first no negative.
    samples, proxy = torch.tensor([[0.4, 0.0], [0.3, 0.0]]), torch.zeros(1, 2)
    given = (samples, torch.tensor([0, 1]), proxy, torch.tensor([0]))
    assert TripletLoss(0.05, references_as_anchors=True)(*given).item() == pytest.approx(0.15)
    assert TripletLoss(0.05)(*given).item() == 0.0


@pytest.mark.parametrize("margin", [0.05, 0.3])
def test_agrees_with_pytorch_metric_learning(crowd, margin):
    e, y, r, ry = crowd
    theirs = pml.TripletMarginLoss(margin=margin, distance=distances.LpDistance(normalize_embeddings=False))
    ours = TripletLoss(margin)
    torch.testing.assert_close(ours(e, y), theirs(e, y), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours(e, y, r, ry), theirs(e, y, ref_emb=r, ref_labels=ry), rtol=1e-5, atol=0)
    as_anchors = TripletLoss(margin, references_as_anchors=True)(e, y, r, ry)
    torch.testing.assert_close(as_anchors, theirs(r, ry, ref_emb=e, ref_labels=y), rtol=1e-5, atol=0)


def test_blocks_do_not_change_the_result(crowd, monkeypatch):
    whole = TripletLoss(0.1)(*crowd)
    monkeypatch.setattr(triplet, "_BLOCK_ELEMENTS", 7 * 90)  # seven anchors at a time: the last block is smaller
    assert TripletLoss(0.1)(*crowd) == whole


def test_refuses_a_negative_margin():
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        TripletLoss(-1.0)
