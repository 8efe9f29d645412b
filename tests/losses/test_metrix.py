"""Metrix against explicit mixtures, by hand, in its draws, and across a break."""

import math

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ccp_dml.functional.distances import clip_normalise, l2_normalise
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, Metrix, MultiSimilarityLoss, TripletLoss
from ccp_dml.losses.metrix import drawn_positives, similarities_to_mixtures
from ccp_dml.losses.pairs import pair_up

LABELS = torch.arange(12) % 4
CALLS = 12  # enough for both sides of the coin


def batch(seed=0, rows=12, dim=5, dtype=torch.float64):
    """Vectors inside and outside the unit ball."""
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 0.5


class Draws:
    """Stands in for the random numbers of a step: lambda, coin and scores of the positives."""

    def __init__(self, share, coin, scores=None):
        self.share, self.coin, self.scores = share, coin, scores

    def beta(self, *_):
        return self.share

    def random(self, shape=None, dtype=None):
        return self.coin if shape is None else np.asarray(self.scores, dtype=dtype)


def drawing(monkeypatch, *given):
    monkeypatch.setattr("ccp_dml.losses.metrix.np.random.default_rng", lambda *_: Draws(*given))


def explicit(embeddings, labels, share, coin, scores, mixed_loss):
    """Make every mixture, one by one, in plain Python numbers; give its similarity to `mixed_loss`, for each anchor."""
    rows = [[x / max(1.0, math.hypot(*v)) for x in v] for v in embeddings.tolist()]
    labels, total = labels.tolist(), 0.0
    for i, anchor in enumerate(rows):
        positives = [j for j in range(len(rows)) if j != i and labels[j] == labels[i]]
        end = i if coin < 0.5 else max(positives, key=lambda j, i=i: scores[i][j], default=None)
        similarities = []
        for n, other in enumerate(rows):
            if labels[n] != labels[i] and end is not None:
                mixture = [share * x + (1 - share) * y for x, y in zip(rows[end], other, strict=True)]
                length = math.hypot(*mixture)
                similarities.append(sum(x * y / length for x, y in zip(anchor, mixture, strict=True)))
        total += mixed_loss(similarities)
    return total / len(rows)


def mixed_multi_similarity(share, alpha, beta, base):
    def of_anchor(similarities):
        pull = share * sum(math.exp(-alpha * (s - base)) for s in similarities)
        push = (1 - share) * sum(math.exp(beta * (s - base)) for s in similarities)
        return math.log(1 + pull) / alpha + math.log(1 + push) / beta

    return of_anchor


def mixed_contrastive(share, margin):
    return lambda similarities: sum(share * max(0.0, 1 - s) + (1 - share) * max(0.0, s - margin) for s in similarities)


CASES = {
    "ms": (MultiSimilarityLoss(2.0, 40.0, 0.5), lambda share: mixed_multi_similarity(share, 2.0, 40.0, 0.5)),
    "ms of Cars196": (
        MultiSimilarityLoss(14.35, 75.83, 0.66),
        lambda share: mixed_multi_similarity(share, 14.35, 75.83, 0.66),
    ),
    "c1": (CosineContrastiveLoss(0.2), lambda share: mixed_contrastive(share, 0.2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("coin", [0.4, 0.6])
@pytest.mark.parametrize("labels", [LABELS, torch.tensor([0, 1, 0, 2, 0, 1, 3, 0, 4, 4, 0, 0])])  # 2 and 3 stand alone
def test_equals_the_explicit_formula(case, share, coin, labels, monkeypatch):
    loss, mixed_loss = CASES[case]
    embeddings = batch()
    scores = np.random.default_rng(1).random((12, 12))
    drawing(monkeypatch, share, coin, scores)
    expected = explicit(embeddings, labels, share, coin, scores, mixed_loss(share))
    assert expected > 0
    found = Metrix(loss, weight=0.3)(embeddings, labels)
    assert found.item() == pytest.approx(loss(embeddings, labels).item() + 0.3 * expected, rel=1e-9)


BY_HAND = {  # the end that is mixed with negatives -> similarities of each of the three anchors to its mixtures
    "itself": (
        [3 / math.hypot(3, 1)],
        [3.6 / math.hypot(2.4, 2.8)],
        [3 / math.hypot(3, 1), 3.6 / math.hypot(0.8, 3.6)],
    ),
    "a positive": ([2.4 / math.hypot(2.4, 2.8)], [3 / math.hypot(3, 1)], []),  # the third has no positive
}


@pytest.mark.parametrize("end", BY_HAND)
def test_by_hand(end, monkeypatch):
    """Three quarters of an anchor or of its positive, a quarter of a negative."""
    embeddings, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    drawing(monkeypatch, 0.75, 0.1 if end == "itself" else 0.9, [[0.5] * 3] * 3)
    expected = 0.0
    for row in BY_HAND[end]:
        expected += math.log(1 + 0.75 * sum(math.exp(-2 * (s - 0.5)) for s in row)) / 2
        expected += math.log(1 + 0.25 * sum(math.exp(10 * (s - 0.5)) for s in row)) / 10
    loss = MultiSimilarityLoss(alpha=2.0, beta=10.0, base=0.5)
    mixed = Metrix(loss, weight=1.0)(embeddings, labels) - loss(embeddings, labels)
    assert mixed.item() == pytest.approx(expected / 3, rel=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_a_mixture_draws_an_anchor_by_its_positive_share_and_repels_it_by_the_rest(share, monkeypatch):
    """Between a positive to the right and a negative above, the anchor turns to the mixture or away from it."""
    embeddings = torch.tensor([[math.sqrt(0.5), -math.sqrt(0.5)], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    loss = MultiSimilarityLoss(alpha=2.0, beta=2.0, base=0.0)
    drawing(monkeypatch, share, 0.9, [[0.0] * 3] * 3)
    labels = torch.tensor([0, 0, 1])
    (of_all,) = torch.autograd.grad(Metrix(loss, weight=1.0)(embeddings, labels), embeddings)
    (of_loss,) = torch.autograd.grad(loss(embeddings, labels), embeddings)
    mixture = torch.tensor([share, 1 - share])
    towards = -(of_all - of_loss)[0] @ mixture
    assert (towards > 0) == (share > 0.5)


@pytest.mark.parametrize("loss", [MultiSimilarityLoss(), CosineContrastiveLoss()])
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_gradient_check(loss, calls):
    metrix = Metrix(loss, seed=3)

    def value(embeddings):
        metrix.calls = calls
        return metrix(embeddings, LABELS)

    assert torch.autograd.gradcheck(value, [batch().requires_grad_()])


def test_weight_zero_is_the_loss_itself():
    embeddings = batch(dtype=torch.float32)
    loss = MultiSimilarityLoss()
    without, with_it = (embeddings.clone().requires_grad_() for _ in range(2))
    expected, found = loss(without, LABELS), Metrix(loss, weight=0.0)(with_it, LABELS)
    assert torch.equal(found, expected)
    expected.backward()
    found.backward()
    assert torch.equal(without.grad, with_it.grad)


def values(metrix, calls=CALLS):
    return [metrix(batch(call), LABELS).item() for call in range(calls)]


def test_draws_follow_from_the_seed_and_change_from_call_to_call():
    def of_one_batch(seed):
        metrix = Metrix(MultiSimilarityLoss(), seed=seed)
        return [metrix(batch(), LABELS).item() for _ in range(CALLS)]

    state = torch.random.get_rng_state()
    assert of_one_batch(1) == of_one_batch(1) != of_one_batch(2)
    assert len(set(of_one_batch(1))) == CALLS
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("stop", [1, 5])
def test_goes_on_exactly_after_a_break(stop):
    whole = values(Metrix(MultiSimilarityLoss(), seed=4))
    first = Metrix(MultiSimilarityLoss(), seed=4)
    values(first, stop)
    second = Metrix(MultiSimilarityLoss(), seed=4)
    second.load_state_dict(first.state_dict())
    assert [second(batch(call), LABELS).item() for call in range(stop, CALLS)] == whole[stop:]


def test_a_batch_that_is_only_measured_changes_no_later_draw():
    metrix = Metrix(MultiSimilarityLoss(), seed=4)
    found = []
    for call in range(CALLS):
        metrix.eval()(batch(), LABELS)
        found.append(metrix.train()(batch(call), LABELS).item())
    assert found == values(Metrix(MultiSimilarityLoss(), seed=4))


class Recorder(torch.nn.Module):
    """A loss that costs nothing and notes what it is asked."""

    normalise = "none"

    def __init__(self):
        super().__init__()
        self.shares, self.lone_anchor_takes_part = [], []

    def forward(self, embeddings, labels):
        return embeddings.new_zeros(len(labels)).sum()

    def of_mixtures(self, similarities, taking_part, share):
        self.shares.append(share)
        self.lone_anchor_takes_part.append(bool(taking_part[0].any()))
        return similarities.sum() * 0


def test_lambda_follows_the_beta_distribution_and_the_other_end_a_coin():
    recorder = Recorder()
    metrix = Metrix(recorder, alpha=2.0, seed=7)
    for _ in range(2000):
        metrix(torch.eye(3), torch.tensor([0, 1, 1]))  # the first has no positive: it mixes with itself alone
    assert np.mean(recorder.lone_anchor_takes_part) == pytest.approx(0.5, abs=0.04)
    assert np.mean(recorder.shares) == pytest.approx(0.5, abs=0.02)
    assert np.var(recorder.shares) == pytest.approx(1 / 20, abs=0.005)  # of Beta(2, 2)
    assert abs(np.corrcoef(recorder.shares, recorder.lone_anchor_takes_part)[0, 1]) < 0.1


def test_every_positive_is_drawn_as_often_and_nothing_else():
    pairs = pair_up(batch(), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3]))
    draw = np.random.default_rng(0)
    drawn = torch.stack([drawn_positives(pairs, draw) for _ in range(3000)])  # (3000, B)
    shares = torch.nn.functional.one_hot(drawn, 12).double().mean(0)[:-1]  # the last anchor has no positive
    positive = pairs.positive[:-1].double()
    torch.testing.assert_close(shares, positive / positive.sum(1, keepdim=True), atol=0.04, rtol=0)
    assert not shares[positive == 0].any()


@pytest.mark.parametrize("loss", [MultiSimilarityLoss(), CosineContrastiveLoss()])
@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [0, 0, 1]])
@pytest.mark.parametrize("point", [None, [0.0, 0.0], [0.6, 0.8]])
def test_is_finite_and_differentiable_with_whatever_is_missing(loss, labels, point):
    metrix = Metrix(loss)
    for call in range(CALLS):
        vectors = batch(call, len(labels), 2, torch.float32) if point is None else torch.tensor([point] * len(labels))
        embeddings = vectors.reshape(len(labels), 2).requires_grad_()
        value = metrix(embeddings, torch.tensor(labels, dtype=torch.int64))
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(embeddings.grad).all()


def test_ends_that_cancel_each_other_have_no_direction(monkeypatch):
    embeddings = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    drawing(monkeypatch, 0.5, 0.9, [[0.0] * 3] * 3)
    loss = MultiSimilarityLoss()
    value = Metrix(loss)(embeddings, torch.tensor([0, 0, 1]))
    value.backward()
    assert torch.isfinite(embeddings.grad).all()
    similarities = similarities_to_mixtures(embeddings, torch.tensor([1, 0, 0]), 0.5)
    assert similarities[0, 2] == 0
    assert similarities.abs().max() <= 1 + 1e-6


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_nothing_is_survived(share, monkeypatch):
    """Beta(alpha, alpha) of a small alpha is 0 or 1, as far as numbers can tell."""
    drawing(monkeypatch, share, 0.1)
    assert torch.isfinite(Metrix(MultiSimilarityLoss(), alpha=1e-3)(batch(), LABELS))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    halves = batch(dtype=dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Metrix(MultiSimilarityLoss())(halves, LABELS)
    found.backward()
    assert found.dtype == torch.float32
    assert halves.grad.dtype == dtype
    torch.testing.assert_close(found, Metrix(MultiSimilarityLoss())(halves.detach().float(), LABELS))


@pytest.mark.parametrize(("name", "normalise"), [("clip", clip_normalise), ("l2", l2_normalise)])
def test_embeddings_are_normalised_as_the_loss_does(name, normalise):
    embeddings = batch() * torch.linspace(0.2, 4.0, 12, dtype=torch.float64)[:, None]
    found, expected = (Metrix(MultiSimilarityLoss(normalise=how)) for how in (name, "none"))
    torch.testing.assert_close(found(embeddings, LABELS), expected(normalise(embeddings), LABELS))


@pytest.mark.parametrize("loss", [MultiSimilarityLoss(), CosineContrastiveLoss()])
def test_no_step_waits_for_a_gpu(loss):
    """Fake tensors have no values: `.item()`, a boolean index or a branch on a value raises."""
    metrix = Metrix(loss)
    with FakeTensorMode(allow_non_fake_inputs=True):
        embeddings = torch.zeros(40, 16, device="cuda")
        for _ in range(CALLS):
            assert metrix(embeddings, torch.zeros(40, dtype=torch.int64, device="cuda")).shape == ()


@pytest.mark.parametrize(
    "arguments", [{"weight": -0.1}, {"weight": math.nan}, {"alpha": 0.0}, {"alpha": math.nan}, {"alpha": math.inf}]
)
def test_refuses_what_is_no_weight_or_no_distribution(arguments):
    with pytest.raises(ValueError, match=r"weight >= 0 and alpha > 0, got"):
        Metrix(MultiSimilarityLoss(), **arguments)


@pytest.mark.parametrize("loss", [ContrastiveLoss(), TripletLoss()])
def test_refuses_a_loss_that_takes_no_mixtures(loss):
    with pytest.raises(ValueError, match=f"takes mixtures .* {type(loss).__name__} does not"):
        Metrix(loss)
