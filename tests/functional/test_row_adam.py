"""Adam by rows against torch's Adam, which is told that all other gradients are zero."""

import copy

import pytest
import torch

from ccp_dml.functional.row_adam import TOUCHED, RowAdam, rows_of, steps_until_rest

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8}


def gradient_of(shape, step, generator, share=0.1):
    """Draw a gradient (C, P, D) of which some rows are not zero: dense, and sparse in C and P."""
    rows = (torch.rand(shape[:2], generator=generator) < share) & (torch.arange(shape[0]) % 7 != step % 7)[:, None]
    dense = torch.randn(shape, generator=generator, dtype=torch.float64) * rows.unsqueeze(-1) * 10 ** (step % 5 - 2.0)
    return dense, dense.to_sparse(2)


@pytest.mark.parametrize(("betas", "steps"), [((0.9, 0.999), 1000), ((0.5, 0.9), 200), ((0.0, 0.99), 100)])
def test_rows_are_where_adam_has_them_at_every_step(betas, steps):
    shape, generator = (40, 2, 3), torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator, dtype=torch.float64)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    plain = torch.randn(5, dtype=torch.float64, generator=generator)  # a parameter that has dense gradients
    ours_plain, theirs_plain = plain.clone().requires_grad_(), plain.clone().requires_grad_()
    settings = {**SETTINGS, "betas": betas}
    rows, adam = RowAdam([ours_plain, ours], **settings), torch.optim.Adam([theirs_plain, theirs], **settings)
    for step in range(steps):
        share = 0.0 if 0.2 < step / steps < 0.7 else 0.05  # everything comes to rest in between
        dense, sparse = gradient_of(shape, step, generator, share)
        if step == steps // 2:
            dense[3, 1] = 1.0
            sparse = dense.to_sparse(2)
        ours.grad, theirs.grad = (dense.clone() if step == steps - 50 else sparse), dense.clone()
        ours_plain.grad = theirs_plain.grad = plain * (step + 1)
        rows.step(), adam.step()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours_plain, theirs_plain, rtol=0, atol=0)
    assert (ours - start).abs().max() > 0.1


def test_rows_at_rest_are_not_visited():
    value = torch.zeros(100, 1, 4, requires_grad=True)
    optimizer = RowAdam([value], **SETTINGS)
    everything = torch.ones(100, 1, 4)
    value.grad = everything.to_sparse(2)
    optimizer.step()
    few = torch.zeros(100, 1, 4)
    few[:3] = 1.0
    rest = steps_until_rest(0.9, torch.float32)
    for _ in range(rest):
        value.grad = few.to_sparse(2)
        optimizer.step()
    optimizer.state[value]["exp_avg"][50] = 1e9  # would be seen if the row moved
    before = value.detach().clone()
    value.grad = few.to_sparse(2)
    optimizer.step()
    assert torch.equal(value[3:], before[3:])
    assert not torch.equal(value[:3], before[:3])


def test_a_restored_state_goes_on_bit_by_bit():
    shape = (30, 1, 4)
    start = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).float()

    def train(value, optimizer, steps):
        for step in steps:
            draw = torch.Generator().manual_seed(step)
            value.grad = gradient_of(shape, step, draw)[1].float()
            optimizer.step()

    whole = start.clone().requires_grad_()
    train(whole, RowAdam([whole], **SETTINGS), range(400))
    broken = start.clone().requires_grad_()
    first = RowAdam([broken], **SETTINGS)
    train(broken, first, range(123))
    resumed = broken.detach().clone().requires_grad_()
    second = RowAdam([resumed], **SETTINGS)
    second.load_state_dict(first.state_dict())
    assert second.state[resumed][TOUCHED].dtype == torch.int32
    train(resumed, second, range(123, 400))
    assert torch.equal(whole, resumed)


def test_gradients_that_are_sparse_in_another_way_are_refused():
    with pytest.raises(ValueError, match="all dimensions but the last"):
        rows_of(torch.eye(3).to_sparse())
    rows, values = rows_of(torch.tensor([[[0.0, 0.0], [1.0, 2.0]], [[3.0, 0.0], [0.0, 0.0]]]).to_sparse(2))
    assert rows.tolist() == [1, 2]
    assert values.tolist() == [[1.0, 2.0], [3.0, 0.0]]


def test_a_copy_takes_the_same_steps():
    value = torch.ones(6, 4).requires_grad_()
    optimizer = RowAdam([value], **SETTINGS)
    twin = copy.deepcopy(optimizer)
    (other,) = twin.param_groups[0]["params"]
    for each, of in ((optimizer, value), (twin, other)):
        of.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 4), (6, 4), check_invariants=True)
        each.step()
    assert torch.equal(value, other)
    assert not torch.equal(value, torch.ones(6, 4))
