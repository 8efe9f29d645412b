import pytest
import torch
from support.pair_formulas import NORMALISED, distances

from ccp_dml.functional.distances import NORMALISERS
from ccp_dml.losses import reference_values
from ccp_dml.losses.reference_values import distances_to, similarities_to

FUNCTIONS = {
    "distances": (distances_to, distances),
    "similarities": (similarities_to, lambda a, b: a @ b.T),
}


def vectors(rows, seed=0, dim=5):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 0.5


def awkward_references(a):
    """Inside of the unit ball, outside, on its surface exactly, zero, and a duplicate of an anchor."""
    r = torch.cat([vectors(6, 1), 3 * vectors(6, 2), torch.zeros(4, a.shape[1], dtype=torch.float64)])
    r[12, :2] = torch.tensor([0.6, 0.8])
    r[13, 0] = -1.0
    r[15] = a[0].detach()
    return r


@pytest.mark.parametrize("normalise", ["clip", "l2", "none"])
@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("columns", [None, [1, 4, 7, 8, 12, 13, 14, 15], []], ids=["all", "some", "none"])
def test_values_and_gradients_equal_the_formula(normalise, kind, columns, monkeypatch):
    monkeypatch.setitem(reference_values._BLOCK_NUMBERS, "cpu", 5 * 3)  # several blocks, the last one smaller
    ours, formula = FUNCTIONS[kind]
    a = vectors(4).requires_grad_()
    r = awkward_references(a).requires_grad_()
    listed = None if columns is None else torch.tensor(columns, dtype=torch.int64)
    found = ours(a, r, normalise, listed)
    right = formula(a, NORMALISED[normalise](r))[:, slice(None) if columns is None else columns]
    torch.testing.assert_close(found, right)
    weights = torch.randn(right.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for mine, true in zip(
        torch.autograd.grad((found * weights).sum(), (a, r)),
        torch.autograd.grad((right * weights).sum(), (a, r)),
        strict=True,
    ):
        torch.testing.assert_close(mine, true)


@pytest.mark.parametrize("ours", [distances_to, similarities_to])
@pytest.mark.parametrize("normalise", ["clip", "l2", "none"])
def test_gradient_check(ours, normalise):
    a, r = vectors(3).requires_grad_(), (3 * vectors(6, 1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: ours(*given, normalise, torch.tensor([0, 2, 5])), (a, r))
    assert torch.autograd.gradcheck(lambda *given: ours(*given, normalise), (a, r))


@pytest.mark.parametrize("ours", [distances_to, similarities_to])
def test_only_wanted_gradients_are_made_and_in_the_type_of_their_input(ours):
    a, r = vectors(3).float(), vectors(6, 1).bfloat16().requires_grad_()
    ours(a, r, "clip").sum().backward()
    assert r.grad.dtype == torch.bfloat16
    a, r = a.requires_grad_(), r.detach()
    ours(a, r, "clip").sum().backward()
    assert a.grad.dtype == torch.float32


def test_a_reference_equal_to_an_anchor_is_at_distance_zero():
    v = (vectors(40, dim=128) * torch.linspace(0.1, 9.0, 40, dtype=torch.float64)[:, None]).float()
    for normalise in ("clip", "l2"):
        apart = distances_to(NORMALISERS[normalise](v), v, normalise, torch.arange(0, 40, 2))
        assert (apart[::2].diagonal() == 0).all()


@pytest.mark.parametrize("ours", [distances_to, similarities_to])
def test_autocast_changes_nothing(ours):
    a, r = vectors(3).float().requires_grad_(), vectors(6, 1).float().requires_grad_()
    plain = ours(a, r, "clip")
    expected = torch.autograd.grad(plain.sum(), (a, r))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ours(a, r, "clip")
        gradients = torch.autograd.grad(found.sum(), (a, r))
    assert torch.equal(found, plain)
    assert all(torch.equal(mine, true) for mine, true in zip(gradients, expected, strict=True))
