import pytest
import torch

from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, TripletLoss, nearby, pairs, reference_values
from ccp_dml.losses.nearby import columns_above, columns_within


def scene(rows=500, dim=16, dtype=torch.float32, lengths=1.0):
    draw = torch.Generator().manual_seed(1)
    a = torch.nn.functional.normalize(torch.randn(6, dim, generator=draw), dim=1)
    r = torch.randn(rows, dim, generator=draw) / dim**0.5
    r = (r + a[torch.arange(rows) % 6] * torch.rand(rows, 1, generator=draw) * 3) * lengths
    return a.to(dtype), r.to(dtype)


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    monkeypatch.setitem(reference_values._BLOCK_NUMBERS, "cpu", 16 * 77)


@pytest.mark.parametrize("normalise", ["clip", "l2", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reach", [0.3, 0.8, 1.2])
def test_finds_what_is_near_and_little_else(normalise, dtype, reach):
    a, r = scene(dtype=dtype)
    b = NORMALISERS[normalise](r)
    apart = torch.cdist(a.double(), b.double()).amin(0)
    found = columns_within(a, r, normalise, reach)
    assert found[apart < reach].all()
    assert not found[apart > reach + 0.05].any()
    assert found.sum() < len(r)
    similar = (a.double() @ b.double().T).amax(0)
    found = columns_above(a, r, normalise, reach / 2)
    assert found[similar > reach / 2].all()
    assert not found[similar < reach / 2 - 0.05 * max(1.0, b.norm(dim=1).amax() ** 2 / 8)].any()


def test_a_program_may_make_any_device_the_default():
    anchors, references = torch.randn(4, 3), torch.randn(30, 3)
    found = columns_within(anchors, references, "clip", 0.5)
    with torch.device("meta"):  # stands for a GPU: whatever is made there by mistake fits nothing here
        assert torch.equal(columns_within(anchors, references, "clip", 0.5), found)


def test_each_anchor_has_its_own_reach():
    a, r = scene()
    reach = torch.tensor([0.5, 0.9, 1.2, -torch.inf, 0.0, 0.7])[:, None]
    b = NORMALISERS["clip"](r)
    excess = (torch.cdist(a, b) - reach).amin(0)
    found = columns_within(a, r, "clip", reach)
    assert found[excess < 0].all()
    assert not found[excess > 0.05].any()
    assert not columns_within(a, r, "clip", torch.full((6, 1), -torch.inf)).any()
    assert not columns_within(a, r, "clip", 0.0).any()


@pytest.mark.parametrize("lengths", [1e-3, 1e3, 1e15])
def test_holds_for_references_of_any_length(lengths):
    a, r = scene(lengths=lengths)
    apart = torch.cdist(a.double(), NORMALISERS["clip"](r).double()).amin(0)
    reach = float(apart.median())
    assert columns_within(a, r, "clip", reach)[apart < reach].all()


def test_references_at_the_edge_are_found_however_products_are_rounded():
    """bfloat16 is the coarsest that torch may be told to multiply float32 in."""
    a, r = scene(rows=3000, dim=64)
    coarse, b = a.bfloat16().float(), NORMALISERS["l2"](r)
    squared = torch.cdist(a.double(), b.double()).square()
    seen_as = 2 - 2 * (coarse.double() @ b.bfloat16().double().T)  # what such a product would say
    assert (seen_as - squared).abs().max() / 2 < nearby._ROUNDING


def test_nan_and_infinity_are_found():
    a, r = scene(rows=30)
    r -= 5 * a[torch.arange(30) % 6]
    r[3], r[8] = torch.nan, torch.inf
    assert columns_within(a, r, "clip", 0.1)[[3, 8]].all()
    assert columns_above(a, r, "none", 0.9)[[3, 8]].all()
    a[2, 0] = torch.nan
    assert columns_within(a, r, "clip", 0.1).all()


@pytest.mark.parametrize("loss", [ContrastiveLoss(0.1, 0.6), CosineContrastiveLoss(0.8), TripletLoss(0.3)])
def test_looking_for_what_is_near_equals_looking_at_all_of_twenty_thousand_classes(monkeypatch, loss):
    draw = torch.Generator().manual_seed(5)
    classes = torch.nn.functional.normalize(torch.randn(20_000, 16, generator=draw, dtype=torch.float64), dim=1)
    labels = torch.randperm(20_000, generator=draw)[:8].repeat_interleave(2)
    noise = 0.1 * torch.randn(16, 16, generator=draw, dtype=torch.float64)
    found = []
    for least in (1, 1 << 62):
        monkeypatch.setitem(pairs._PAIRS_WORTH_A_SEARCH, "cpu", least)
        embeddings, proxies = (2 * (classes[labels] + noise)).requires_grad_(), (3 * classes).requires_grad_()
        value = loss(embeddings, labels, proxies, torch.arange(20_000))
        value.backward()
        found.append((value.detach(), embeddings.grad, proxies.grad))
    for blockwise, dense in zip(*found, strict=True):
        torch.testing.assert_close(blockwise, dense, rtol=0, atol=1e-12)
    touched = (found[1][2] != 0).any(1).sum()
    assert 8 < touched < 2_000
