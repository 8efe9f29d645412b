import math

import pytest
import torch
from pytorch_metric_learning import distances, reducers
from pytorch_metric_learning import losses as pml

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss

# Two of class 0 and one of class 1, at (0, 0), (0.3, 0.4) and (0.6, 0): distances .5 (positive), .6 and .5 (negative).
CORNERS = torch.tensor([[0.0, 0.0], [0.3, 0.4], [0.6, 0.0]])
CORNER_LABELS = torch.tensor([0, 0, 1])


@pytest.mark.parametrize(("m_pos", "m_neg"), [(0.0, 0.3841), (0.2652, 0.5409), (0.1, 1.2)])
def test_c2_equals_the_explicit_formula(arguments, rows_of_pairs, mean_of_non_zero, m_pos, m_neg):
    pairs = [pair for row in rows_of_pairs(*arguments) for pair in row]
    expected = mean_of_non_zero([d - m_pos for same, d, _ in pairs if same])
    expected += mean_of_non_zero([m_neg - d for same, d, _ in pairs if not same])
    assert ContrastiveLoss(m_pos, m_neg)(*arguments).item() == pytest.approx(expected, rel=1e-5)


def test_c2_counts_no_exact_duplicate_as_a_violated_pair(rows_of_pairs, mean_of_non_zero):
    vectors = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    samples, labels = vectors.repeat(8, 1), torch.arange(6).repeat(8) // 2  # 48 samples: each vector eight times
    expected = mean_of_non_zero([d for row in rows_of_pairs(samples, labels) for same, d, _ in row if same])
    assert ContrastiveLoss(0.0, 0.0)(samples, labels).item() == pytest.approx(expected, rel=1e-5)


def test_c2_by_hand():
    # Positives: .5 - .2 = .3. Negatives, each pair seen from both ends: .8 - .6 = .2 and .8 - .5 = .3, mean .25.
    assert ContrastiveLoss(0.2, 0.8)(CORNERS, CORNER_LABELS).item() == pytest.approx(0.55)
    # At a negative margin of .55, only the pair at .5 counts: .05.
    assert ContrastiveLoss(0.2, 0.55)(CORNERS, CORNER_LABELS).item() == pytest.approx(0.35)


def test_c2_pulls_positives_and_pushes_negatives():
    sample = torch.zeros(1, 2, requires_grad=True)
    references = torch.tensor([[0.5, 0.0], [0.0, 0.5]])  # a positive to the right, a negative above
    ContrastiveLoss(0.0, 1.0)(sample, torch.tensor([0]), references, torch.tensor([0, 1])).backward()
    torch.testing.assert_close(sample.grad, torch.tensor([[-1.0, 1.0]]))  # descent goes right and down


def test_c2_agrees_with_pytorch_metric_learning(crowd):
    e, y, r, ry = crowd
    theirs = pml.ContrastiveLoss(
        pos_margin=0.2652, neg_margin=0.5409, distance=distances.LpDistance(normalize_embeddings=False)
    )
    ours = ContrastiveLoss(0.2652, 0.5409)
    torch.testing.assert_close(ours(e, y), theirs(e, y), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours(e, y, r, ry), theirs(e, y, ref_emb=r, ref_labels=ry), rtol=1e-5, atol=0)


@pytest.mark.parametrize("margin", [0.5, 0.0, 0.9])
def test_c1_equals_the_explicit_formula(arguments, rows_of_pairs, margin):
    rows = rows_of_pairs(*arguments)
    terms = [max(0.0, 1 - s if same else s - margin) for row in rows for same, _, s in row]
    assert CosineContrastiveLoss(margin)(*arguments).item() == pytest.approx(sum(terms) / len(rows), rel=1e-5)


def test_c1_by_hand():
    slanted = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])  # similarities .6 (positive), .8 and .96 (negative)
    expected = 2 * ((1 - 0.6) + (0.8 - 0.5) + (0.96 - 0.5)) / 3
    assert CosineContrastiveLoss(0.5)(slanted, CORNER_LABELS).item() == pytest.approx(expected)


def test_c1_turns_towards_positives_and_away_from_negatives():
    sample = torch.tensor([[math.sqrt(0.5), math.sqrt(0.5)]], requires_grad=True)
    CosineContrastiveLoss(0.5)(sample, torch.tensor([0]), torch.eye(2), torch.tensor([0, 1])).backward()
    assert sample.grad[0, 0] < 0 < sample.grad[0, 1]


def test_c1_agrees_with_pytorch_metric_learning(crowd):
    e, y, r, ry = crowd
    theirs = pml.ContrastiveLoss(
        pos_margin=1.0,
        neg_margin=0.5,
        distance=distances.CosineSimilarity(),
        reducer=reducers.SumReducer(),
    )
    ours = CosineContrastiveLoss(0.5)
    torch.testing.assert_close(ours(e, y), theirs(e, y) / len(e), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours(e, y, r, ry), theirs(e, y, ref_emb=r, ref_labels=ry) / len(e), rtol=1e-5, atol=0)


@pytest.mark.parametrize("margins", [(-0.1, 0.5), (0.6, 0.5)])
def test_c2_refuses_margins_in_the_wrong_order(margins):
    with pytest.raises(ValueError, match="0 <= positive_margin <= negative_margin"):
        ContrastiveLoss(*margins)


def test_c1_refuses_a_margin_that_is_no_similarity():
    with pytest.raises(ValueError, match=r"\[-1, 1\], got 2"):
        CosineContrastiveLoss(2.0)


def test_the_losses_state_the_chance_constraint_that_they_bound():
    assert ContrastiveLoss(0.2, 1.0).chance_constraint() == (0.6, 0.4, "distance")
    assert CosineContrastiveLoss(0.5).chance_constraint() == (math.sqrt(0.5), 0.25, "half squared distance")
