"""Every pair loss equals its formula, value and gradients, whether it looks for the references that count or not."""

import pytest
import torch
from support.pair_formulas import written_down

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss, pairs
from ccp_dml.losses.activity import pair_activity, recorded_pairs
from ccp_dml.losses.pairs import pair_up

MADE = {
    "c1": lambda **options: CosineContrastiveLoss(0.5, **options),
    "c2": lambda **options: ContrastiveLoss(0.25, 0.5, **options),
    "c2 without margins": lambda **options: ContrastiveLoss(0.0, 0.0, **options),
    "triplet": lambda **options: TripletLoss(0.125, **options),
    "triplet, references as anchors": lambda **options: TripletLoss(0.125, references_as_anchors=True, **options),
    "ms": lambda **options: MultiSimilarityLoss(2.0, 40.0, 0.5, **options),
}
every_loss = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


@pytest.fixture(params=["all references", "those that count"], autouse=True)
def search(request, monkeypatch):
    """With few pairs, a loss uses all references; here it has to look for those that count, too."""
    if request.param == "those that count":
        monkeypatch.setitem(pairs._PAIRS_WORTH_A_SEARCH, "cpu", 1)
    return request.param == "those that count"


def scene(case):
    """Embeddings, labels and perhaps references, in float64 but for the margins, and among them what is hard."""
    draw = torch.Generator().manual_seed(7)
    centres = torch.nn.functional.normalize(torch.randn(12, 8, generator=draw, dtype=torch.float64), dim=1)

    def near(labels, spread=0.12):
        return centres[labels] + spread * torch.randn(len(labels), 8, generator=draw, dtype=torch.float64)

    y, ry = torch.arange(12) // 4, torch.arange(60) % 12
    if case == "batch":
        return near(y), y
    if case == "memory":  # of past batches, the present one included: each sample meets its copy
        e = near(y)
        return e, y, torch.cat([near(ry), e.detach().clone()]), torch.cat([ry, y])
    if case == "proxies":  # of any length, inside of the unit ball and outside
        return near(y), y, near(ry) * torch.linspace(0.2, 4.0, 60, dtype=torch.float64)[:, None], ry
    if case == "duplicates":
        e, r = near(y)[:1].repeat(12, 1), near(ry)
        r[::7] = e[0]
        return e, y, r, ry
    if case == "no positives":
        return near(y), y + 100, near(ry), ry
    if case == "no negatives":
        return near(y * 0), y * 0, near(ry * 0), ry * 0
    if case == "nothing near":
        return near(y), y + 100, -9 * near(ry), ry
    # At the margins exactly, and at the kink of the clip: all numbers are exact in binary.
    grid = torch.tensor([[0.0, 0.0], [0.25, 0.0], [0.5, 0.0], [0.0, 0.375], [1.0, 0.0], [0.0, 1.0], [0.0, -0.5]])
    return grid[:3], torch.tensor([0, 0, 1]), grid, torch.tensor([0, 1, 0, 1, 1, 0, 1])


CASES = ["batch", "memory", "proxies", "duplicates", "no positives", "no negatives", "nothing near", "margins"]


def value_and_gradients(function, arguments):
    leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in arguments]
    value = function(*leaves)
    value.backward()
    return [value.detach(), *(t.grad for t in leaves if t.is_floating_point())]


@every_loss
@pytest.mark.parametrize("normalise", ["clip", "l2", "none"])
@pytest.mark.parametrize("case", CASES)
def test_equals_its_formula(make, normalise, case):
    loss, arguments = make(normalise=normalise), scene(case)
    found = value_and_gradients(loss, arguments)
    expected = value_and_gradients(lambda *given: written_down(loss, *given), arguments)
    for mine, right in zip(found, expected, strict=True):
        rounding = 1e-9 if mine.dtype == torch.float64 else 1e-6
        torch.testing.assert_close(mine, right.to(mine.dtype), rtol=rounding, atol=rounding)


@every_loss
@pytest.mark.parametrize("case", ["batch", "memory", "proxies"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equals_its_formula_in_other_precisions(make, case, dtype):
    loss, arguments = make(), [t.to(dtype) if t.is_floating_point() else t for t in scene(case)]
    found = value_and_gradients(loss, arguments)
    assert [t.dtype for t in found] == [torch.float32, *[dtype] * (len(found) - 1)]
    expected = value_and_gradients(lambda *given: written_down(loss, *given), arguments)
    for mine, right in zip(found, expected, strict=True):
        rounding = 2e-5 if mine.dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            mine.double(), right.double(), rtol=rounding, atol=rounding * float(right.abs().max())
        )


@every_loss
def test_a_memory_in_single_precision_serves_a_batch_in_double(make):
    e, y, r, ry = scene("proxies")
    loss = make()
    found = value_and_gradients(lambda e: loss(e, y, r.float(), ry), [e])
    expected = value_and_gradients(lambda e: written_down(loss, e, y, r.float(), ry), [e])
    for mine, right in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-6, atol=1e-6)


@every_loss
def test_the_activity_counts_references_that_were_left_out(make, monkeypatch):
    def activity():
        e, y, r, ry = scene("proxies")
        with recorded_pairs() as record:
            make()(e.requires_grad_(), y, r, ry).backward()
        assert record[-1].size == len(e) * len(r)
        return pair_activity(record)

    found = activity()
    monkeypatch.setitem(pairs._PAIRS_WORTH_A_SEARCH, "cpu", 1 << 60)
    expected = activity()
    assert found.positives == pytest.approx(expected.positives)
    assert found.negatives == pytest.approx(expected.negatives)


@every_loss
@pytest.mark.parametrize("row", [0, 3])
def test_nan_in_a_reference_of_any_class_is_not_hidden(make, row):
    e, y, r, ry = scene("proxies")
    r[row] = torch.nan  # row 3 is of a class that the batch lacks
    loss = make()
    if ry[row] not in y and getattr(loss, "references_as_anchors", False):
        return  # an anchor without positives is in no triplet
    assert torch.isnan(loss(e, y, r, ry))


@every_loss
def test_a_second_derivative_is_refused(make):
    e, y, r, ry = scene("proxies")
    value = make()(e.requires_grad_(), y, r, ry)
    with pytest.raises(RuntimeError, match="no second derivative: call backward or grad without create_graph"):
        torch.autograd.grad(value, e, create_graph=True)


def test_only_references_that_count_are_listed(search):
    e, y, r, ry = scene("proxies")
    r[50:] *= -1
    given = pair_up(e, y, r, ry)
    near = given.nearer_than(0.5)
    if not search:
        assert near.columns is None
        return
    clipped = r / r.norm(dim=1, keepdim=True).clamp(min=1)
    within = (torch.cdist(e / e.norm(dim=1, keepdim=True).clamp(min=1), clipped) < 0.5).any(0)
    own = torch.isin(ry, y)
    assert near.columns.tolist() == (within | own).nonzero().flatten().tolist()
    assert given.of_shared_classes().columns.tolist() == own.nonzero().flatten().tolist()
    assert given.nearer_than(3.0).columns is None  # a list of nearly all would save nothing
    assert pair_up(e, y).nearer_than(0.1).columns is None  # in a batch, everything is a positive of something


def test_few_pairs_are_not_worth_a_search(monkeypatch):
    e, y, r, ry = scene("proxies")
    monkeypatch.setitem(pairs._PAIRS_WORTH_A_SEARCH, "cpu", len(e) * len(r))
    assert pair_up(e, y, r, ry).are_many
    assert not pair_up(e, y, r[1:], ry[1:]).are_many
    assert not pair_up(e, y).are_many


@every_loss
@pytest.mark.parametrize("narrow", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_a_narrow_type_are_those_of_a_wide_one(make, narrow):
    e, y, r, ry = scene("proxies")
    far = ry + 2 ** torch.iinfo(narrow).bits  # other classes altogether, which the narrow type cannot tell apart
    assert torch.equal(make()(e, y.to(narrow), r, far), make()(e, y, r, far))
    assert torch.equal(make()(e, y, r, ry.to(narrow)), make()(e, y, r, ry))
