import pytest
import torch
from torch import nn

from ccp_dml.errors import NonFiniteError, UserError
from ccp_dml.evaluation import Spread, embed, paired_difference, score, spread


class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.modes = []

    def forward(self, inputs):
        self.modes.append(self.training)
        return inputs * self.factor

    def raw(self, inputs):
        return inputs * 10


BATCHES = [(torch.tensor([[0.0], [0.1]]), torch.tensor([0, 1])), (torch.tensor([[0.01]]), torch.tensor([0]))]


def test_batches_are_embedded_in_their_order_in_inference_mode_without_gradients():
    network = Doubled().train()
    embeddings, labels = embed(network, BATCHES)
    assert embeddings.flatten().tolist() == pytest.approx([0.0, 0.2, 0.02])
    assert labels.tolist() == [0, 1, 0]
    assert not embeddings.requires_grad
    assert network.modes == [False, False]
    assert embed(network, BATCHES, raw=True)[0].flatten().tolist() == pytest.approx([0.0, 1.0, 0.1])


def test_queries_find_one_another_or_a_gallery():
    among_themselves = score(Doubled(), BATCHES)
    assert (among_themselves.precision_at_1, among_themselves.queries) == (1.0, 2)  # class 1 has nobody to find
    gallery = [(torch.tensor([[0.005], [0.5]]), torch.tensor([1, 0]))]
    assert score(Doubled(), BATCHES, gallery).precision_at_1 == pytest.approx(1 / 3)


def test_one_run_has_no_standard_deviation():
    assert spread([0.5]) == Spread(0.5, None, 1)
    assert spread([1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3)


def test_layers_keep_their_modes():
    network = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1), nn.Dropout()).train()
    network[1].eval()  # frozen, as batch norm often is
    embed(network, BATCHES)
    assert [layer.training for layer in network.modules()] == [True, True, False, True]


def test_networks_without_weights_and_empty_batches():
    assert embed(nn.Identity(), BATCHES)[0].shape == (3, 1)
    with pytest.raises(UserError, match="Identity has no method `raw`"):
        embed(nn.Identity(), BATCHES, raw=True)
    with pytest.raises(UserError, match="there are no batches to embed"):
        embed(nn.Identity(), [])


@pytest.mark.parametrize("batch", [torch.zeros(2, 1), (torch.zeros(2, 1),), (torch.zeros(2, 1),) * 3])
def test_batches_that_are_no_pairs_are_named(batch):
    with pytest.raises(UserError, match=r"every batch must be a pair \(inputs, labels\)"):
        embed(nn.Identity(), [batch])


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        ((torch.zeros(2, 1), ("wren", "owl")), r"labels must be a tensor, not tuple: it holds names; number them"),
        ((torch.zeros(2, 1), [0, 1]), r"labels must be a tensor, not list: torch\.as_tensor"),
        ((torch.zeros(2, 1).numpy(), torch.zeros(2)), "inputs must be a tensor, not ndarray"),
    ],
)
def test_batches_that_are_no_tensors_are_named_before_the_network_works(batch, what):
    network = Doubled()
    with pytest.raises(UserError, match=what):
        embed(network, [batch])
    assert not network.modes


def test_differences_are_taken_in_pairs():
    found = paired_difference({1: 0.5, 2: 0.7, 3: 0.6, 9: 0.0}, {1: 0.4, 2: 0.4, 3: 0.4})
    assert found.mean == pytest.approx(0.2)
    assert found.pairs == 3
    assert found.interval == pytest.approx((0.2 - 4.302653 * 0.1 / 3**0.5, 0.2 + 4.302653 * 0.1 / 3**0.5), abs=1e-5)
    assert not found.is_clear
    assert paired_difference({1: 0.51, 2: 0.61}, {1: 0.5, 2: 0.6}).is_clear
    single = paired_difference({1: 0.5}, {1: 0.4})
    assert (single.interval, single.is_clear) == (None, False)
    assert paired_difference({1: 0.5}, {2: 0.4}) is None


def test_embeddings_that_are_not_finite_are_named():
    good, bad = torch.eye(4), torch.eye(4).index_fill(0, torch.tensor([2]), float("inf"))
    labels = torch.tensor([0, 0, 1, 1])
    for queries, gallery in ((bad, None), (good, [(bad, labels)])):
        with pytest.raises(NonFiniteError, match="embeddings that hold NaN or infinity"):
            score(nn.Identity(), [(queries, labels)], gallery)
