import pytest
import torch
from torch import nn

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, CrossBatchMemory, MultiSimilarityLoss, TripletLoss
from ccp_dml.losses.activity import active_share, pair_activity, recorded_pairs
from ccp_dml.objectives import ProxyObjective
from ccp_dml.proxies import ClassProxies


@pytest.fixture
def batch():
    drawn = torch.Generator().manual_seed(3)
    return torch.randn(12, 4, generator=drawn).requires_grad_(), torch.arange(4).repeat_interleave(3)


def activity_of(objective, *arguments):
    with recorded_pairs() as record:
        objective(*arguments).backward()
    return pair_activity(record)


def shares(active, labels, others):
    """Shares of True in `active` (B, R) among pairs of one class, a sample with itself left out, and among others."""
    same = labels[:, None] == others[None, :]
    pairs = same & ~torch.eye(len(labels), dtype=torch.bool) if others is labels else same
    return active[pairs].float().mean().item(), active[~same].float().mean().item()


def test_c2_counts_the_pairs_that_violate_a_margin(batch):
    embeddings, labels = batch
    distances = torch.cdist(unit(embeddings), unit(embeddings))
    same = labels[:, None] == labels[None, :]
    positives, negatives = shares(torch.where(same, distances > 0.9, distances < 1.3), labels, labels)
    found = activity_of(ContrastiveLoss(0.9, 1.3), embeddings, labels)
    assert (found.positives, found.negatives) == (pytest.approx(positives), pytest.approx(negatives))
    assert 0 < positives < 1
    assert 0 < negatives < 1


def test_c1_counts_the_pairs_that_violate_a_margin(batch):
    embeddings, labels = batch
    references, others = torch.randn(8, 4, generator=torch.Generator().manual_seed(4)), torch.arange(4).repeat(2)
    positives, negatives = shares(unit(embeddings) @ unit(references).T > 0.3, labels, others)
    found = activity_of(CosineContrastiveLoss(0.3), embeddings, labels, references, others)
    assert (found.positives, found.negatives) == (1.0, pytest.approx(negatives))  # no positive is at similarity one
    assert 0 < negatives < 1
    assert positives < 1


def test_triplet_weighs_a_pair_by_its_violated_triplets():
    anchor = torch.tensor([[0.0, 0.0]], requires_grad=True)
    references = torch.tensor([[0.5, 0.0], [0.1, 0.0], [0.0, 0.2], [0.0, 0.4], [0.0, 0.9]])
    found = activity_of(TripletLoss(0.0), anchor, torch.tensor([0]), references, torch.tensor([0, 0, 1, 1, 1]))
    # Only the positive at .5 is farther than negatives, those at .2 and .4, each in one triplet.
    assert (found.positives, found.negatives) == (pytest.approx(1 / 2), pytest.approx(2 / 3))


def test_ms_counts_as_many_as_would_do_with_equal_weights():
    anchor, labels = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([0])
    references = torch.tensor([[0.8, 0.6], [0.8, -0.6], [0.0, 1.0]])
    soft = activity_of(MultiSimilarityLoss(2.0, 1e-6), anchor, labels, references, torch.tensor([1, 1, 1]))
    sharp = activity_of(MultiSimilarityLoss(2.0, 80.0), anchor, labels, references, torch.tensor([1, 1, 1]))
    assert soft.negatives == pytest.approx(1.0, abs=1e-4)
    assert sharp.negatives == pytest.approx(2 / 3, abs=1e-4)  # the third is far below the other two
    assert soft.positives == sharp.positives == 0.0  # there are none


def test_proxies_and_memory_come_before_the_batch(batch):
    embeddings, labels = batch
    proxies = ClassProxies(4, 5, 4)
    proxies.place(torch.randn(4, 5, 4, generator=torch.Generator().manual_seed(5)))
    loss = ContrastiveLoss(0.9, 1.3)
    assert activity_of(ProxyObjective(loss, proxies), embeddings, labels) == activity_of(
        loss, embeddings, labels, *proxies()
    )
    memory = CrossBatchMemory(loss, size=36, dim=4, start_step=0)
    memory(torch.randn(24, 4, generator=torch.Generator().manual_seed(6)), torch.arange(24) % 4)
    found = activity_of(memory, embeddings, labels)
    assert found == activity_of(loss, embeddings, labels, memory.embeddings, memory.labels)
    assert found != activity_of(loss, embeddings, labels)


def test_recording_changes_no_gradient_and_ends_with_the_block(batch):
    embeddings, labels = batch
    loss = TripletLoss(0.1)
    with recorded_pairs() as record:
        loss(embeddings, labels).backward()
    recorded, embeddings.grad = embeddings.grad, None
    loss(embeddings, labels).backward()
    assert torch.equal(recorded, embeddings.grad)
    assert len(record) == 1


def test_nothing_is_said_of_a_loss_without_pairs_or_without_gradients(batch):
    embeddings, labels = batch
    with recorded_pairs() as record:
        nn.Linear(4, 1)(embeddings).sum().backward()
        with torch.no_grad():
            ContrastiveLoss()(embeddings, labels)
    assert pair_activity(record) is None


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_share_does_not_depend_on_the_scale_of_the_loss(scale):
    weights, mask = scale * torch.tensor([[1.0, -1.0, 0.0, 7.0]]), torch.tensor([[True, True, True, False]])
    assert active_share(weights, mask).item() == pytest.approx(2 / 3)


def test_no_pairs_no_share():
    assert active_share(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)).item() == 0.0
    assert active_share(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)).item() == 0.0
    assert active_share(torch.ones(0, 3), torch.ones(0, 3, dtype=torch.bool)).item() == 0.0


def unit(vectors):
    return vectors.detach() / vectors.detach().norm(dim=1, keepdim=True).clamp(min=1)
