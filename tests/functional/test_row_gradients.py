"""Gradients of the rows that count, against dense ones."""

import pytest
import torch
from torch import nn

from ccp_dml.functional.row_gradients import as_rows, asks_for_rows, clip_gradients, rows_gradient
from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss
from ccp_dml.objectives import ProxyObjective
from ccp_dml.proxies import ClassProxies


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr("ccp_dml.losses.pairs._PAIRS_WORTH_A_SEARCH", {"cpu": 1, "cuda": 1})


def scattered_proxies(by_rows, classes=60, per_class=2, dim=5):
    generator = torch.Generator().manual_seed(0)
    proxies = ClassProxies(classes, per_class, dim, gradient_by_rows=by_rows).double()
    proxies.place(3 * torch.randn(classes, per_class, dim, generator=generator, dtype=torch.float64))
    return proxies


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize(
    "loss",
    [ContrastiveLoss(0.1, 0.4), CosineContrastiveLoss(0.8), TripletLoss(0.05), MultiSimilarityLoss()],
    ids=["c2", "c1", "triplet", "ms"],
)
def test_a_sparse_gradient_holds_the_same_numbers(loss):
    anchors = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    found = []
    for by_rows in (False, True):
        proxies, embeddings = scattered_proxies(by_rows), anchors.clone().requires_grad_()
        ProxyObjective(loss, proxies)(embeddings, labels).backward()
        found.append((embeddings.grad, proxies.vectors.grad))
    (dense_embeddings, dense), (embeddings, sparse) = found
    assert torch.equal(embeddings, dense_embeddings)
    assert torch.equal(sparse.to_dense(), dense)
    if isinstance(loss, ContrastiveLoss | CosineContrastiveLoss):  # the others may feel them all
        assert sparse.is_sparse
        assert sparse.shape == dense.shape == (60, 2, 5)
        assert len(sparse.coalesce().values()) < 60


def test_functions_that_know_nothing_of_rows_give_dense_gradients():
    parameter = nn.Parameter(torch.arange(12.0).view(3, 2, 2))
    rows = as_rows(parameter)
    assert asks_for_rows(rows)
    assert not asks_for_rows(rows * 1)
    assert not asks_for_rows(parameter)
    (rows.square().sum() / 2).backward()
    assert torch.equal(parameter.grad, parameter)


def test_clipping_sees_dense_and_sparse_gradients_as_one():
    def parameters():
        first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(4, 1, 2))
        first.grad = torch.tensor([3.0, 0.0, 0.0])
        second.grad = torch.zeros(4, 1, 2).index_fill_(0, torch.tensor([2]), 4.0)
        return first, second

    for most in (1.0, 100.0):
        dense, sparse = parameters(), parameters()
        rows = rows_gradient(torch.full((1, 2), 4.0), torch.tensor([2]), 4).to_dense().view(4, 1, 2)
        sparse[1].grad = rows.to_sparse(2)
        expected = nn.utils.clip_grad_norm_(dense, most)
        torch.testing.assert_close(clip_gradients(list(sparse), most), expected)
        torch.testing.assert_close(sparse[0].grad, dense[0].grad)
        torch.testing.assert_close(sparse[1].grad.to_dense(), dense[1].grad)
        again = parameters()
        assert torch.equal(clip_gradients(list(again), most), expected)
        assert torch.equal(again[1].grad, dense[1].grad)


@pytest.mark.parametrize("most", [1.0, 100.0])
def test_clipping_counts_what_other_processes_hold(most):
    """A norm of 3, 4 and 12 is 13; this process has 3 in all processes' parameter and 4 in its own part."""
    alike, own = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(4, 2))
    alike.grad = torch.tensor([3.0, 0.0])
    own.grad = torch.zeros(4, 2).index_put_((torch.tensor(1), torch.tensor(0)), torch.tensor(4.0)).to_sparse(1)
    assert clip_gradients([alike], most, [own], lambda squared: squared + 12.0**2).item() == pytest.approx(13.0)
    scale = min(1.0, most / 13)
    assert alike.grad.tolist() == pytest.approx([3.0 * scale, 0.0], rel=1e-6)
    assert own.grad.to_dense()[1].tolist() == pytest.approx([4.0 * scale, 0.0], rel=1e-6)
