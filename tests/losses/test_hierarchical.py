"""HPL-PA: both levels against the formula, when it clusters, and that it goes on exactly after a break."""

import itertools
import math

import pytest
import torch

from ccp_dml.losses import HierarchicalProxyAnchorLoss
from ccp_dml.losses.hierarchical import k_means

CLASSES, DIM = 8, 4


def make(**arguments):
    given = {"clusters": 3, "cluster_every": 2.0, "classes": CLASSES, "dim": DIM, "steps_per_epoch": 2, "seed": 5}
    return HierarchicalProxyAnchorLoss(**{**given, **arguments})


def batches(count, size=6):
    draw = torch.Generator().manual_seed(2)
    return [
        (torch.randn(size, DIM, generator=draw), torch.randint(CLASSES, (size,), generator=draw)) for _ in range(count)
    ]


def proxy_anchor(samples, labels, proxies, margin, alpha):
    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    pull = {}
    push = 0.0
    for number, proxy in enumerate(proxies):
        similarities = [(label == number, cosine(sample, proxy)) for sample, label in zip(samples, labels, strict=True)]
        positives = [math.exp(-alpha * (s - margin)) for same, s in similarities if same]
        if positives:
            pull[number] = math.log(1 + sum(positives))
        push += math.log(1 + sum(math.exp(alpha * (s + margin)) for same, s in similarities if not same))
    return sum(pull.values()) / len(pull) + push / len(proxies)


def best_clustering(points, k):
    """The assignment with the least sum of squares among all of them, as groups of indices."""
    best = None
    for assignment in itertools.product(range(k), repeat=len(points)):
        if len(set(assignment)) < k:
            continue
        groups = [[points[i] for i in range(len(points)) if assignment[i] == g] for g in range(k)]
        centres = [[sum(values) / len(group) for values in zip(*group, strict=True)] for group in groups]
        cost = sum(math.dist(points[i], centres[assignment[i]]) ** 2 for i in range(len(points)))
        if best is None or cost < best[0] - 1e-12:
            best = cost, assignment, centres
    return best


def as_groups(assignment):
    return {frozenset(i for i, g in enumerate(assignment) if g == group) for group in set(assignment)}


def with_three_kinds(loss):
    """Class proxies in three kinds that nobody could group otherwise, of different lengths."""
    kinds = torch.eye(3, DIM)[[0, 1, 2, 0, 1, 2, 0, 1]]
    noise = 0.1 * torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss.fine.proxies.copy_((kinds + noise) * torch.linspace(0.2, 5, CLASSES)[:, None])
    return loss


def test_class_level_at_first_then_both_levels_by_the_formula():
    loss = with_three_kinds(make(margin=0.2, alpha=8.0, coarse_weight=0.3))
    proxies = loss.fine.proxies.tolist()
    directions = [[x / math.hypot(*proxy) for x in proxy] for proxy in proxies]
    _, assignment, centres = best_clustering(directions, 3)
    for step, (samples, labels) in enumerate(batches(9), start=1):
        expected = proxy_anchor(samples.tolist(), labels.tolist(), proxies, 0.2, 8.0)
        if step > 4:  # two epochs of two steps
            coarse_labels = [assignment[label] for label in labels.tolist()]
            expected += 0.3 * proxy_anchor(samples.tolist(), coarse_labels, centres, 0.2, 8.0)
        assert loss(samples, labels).item() == pytest.approx(expected, rel=1e-5), step
    assert (
        as_groups(loss.cluster_of_class.tolist())
        == as_groups(assignment)
        == {
            frozenset({0, 3, 6}),
            frozenset({1, 4, 7}),
            frozenset({2, 5}),
        }
    )


def test_clusters_again_every_few_epochs_and_only_then():
    loss = with_three_kinds(make())
    moved = []
    for step, batch in enumerate(batches(12), start=1):
        before = loss.coarse.proxies.clone()
        with torch.no_grad():
            loss.fine.proxies.mul_(-1)  # the proxies move all the time
        loss(*batch)
        if not torch.equal(loss.coarse.proxies, before):
            moved.append(step)
    assert moved == [5, 9]


def test_a_batch_that_is_only_measured_brings_no_clustering_nearer():
    loss, some = with_three_kinds(make()), batches(5)
    for batch in some[:4]:
        loss.eval()(*batch)
        loss.train()(*batch)
    before = loss.coarse.proxies.clone()
    loss.eval()(*some[4])
    assert torch.equal(loss.coarse.proxies, before)
    loss.train()(*some[4])
    assert not torch.equal(loss.coarse.proxies, before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_any_integer_type_mean_the_same_classes(dtype):
    def values(labels_of):
        loss = with_three_kinds(make(cluster_every=0.5, coarse_weight=1.0))
        return [loss(samples, labels_of(labels)).item() for samples, labels in batches(3)]

    assert values(lambda labels: labels.to(dtype)) == values(lambda labels: labels)


def test_gradient_reaches_class_proxies_and_samples_but_no_coarse_proxy():
    loss = with_three_kinds(make(cluster_every=0.5))
    assert [name for name, value in loss.named_parameters() if value.requires_grad] == ["fine.loss.loss.proxies"]
    samples, labels = batches(1)[0]
    samples.requires_grad_()
    (fine_only,) = torch.autograd.grad(loss(samples, labels), samples)
    (both,) = torch.autograd.grad(loss(samples, labels), samples)
    assert not torch.allclose(fine_only, both)
    loss(samples, labels).backward()
    assert loss.fine.proxies.grad.abs().sum() > 0
    assert loss.coarse.proxies.grad is None


@pytest.mark.parametrize("stop", [1, 4, 5, 7])  # before, at and after the first clustering
def test_resumes_exactly(stop):
    def train(loss, some):
        optimizer = torch.optim.SGD([loss.fine.proxies], lr=0.5)
        values = []
        for batch in some:
            optimizer.zero_grad()
            value = loss(*batch)
            value.backward()
            optimizer.step()
            values.append(value.item())
        return values

    some = batches(12)
    whole = train(make(), some)
    first = make()
    head = train(first, some[:stop])
    second = make()
    second.load_state_dict(first.state_dict())
    assert head + train(second, some[stop:]) == whole


def test_a_program_may_make_any_device_the_default():
    loss = HierarchicalProxyAnchorLoss(classes=6, dim=3, steps_per_epoch=1, clusters=2)
    other = HierarchicalProxyAnchorLoss(classes=6, dim=3, steps_per_epoch=1, clusters=2)
    loss.cluster(1)
    with torch.device("meta"):  # stands for a GPU: whatever is made there by mistake fits nothing here
        other.cluster(1)
    assert torch.equal(loss.coarse.proxies, other.coarse.proxies)


def test_number_of_clusters():
    assert make(clusters=None, classes=75).clusters == 9  # the root of 75
    assert make(clusters=None, classes=3).clusters == 2
    assert make(clusters=50).clusters == CLASSES


@pytest.mark.parametrize("wrong", [{"clusters": 1}, {"cluster_every": 0.0}, {"coarse_weight": -0.1}])
def test_impossible_arguments(wrong):
    with pytest.raises(ValueError, match="HPL-PA needs"):
        make(**wrong)


def test_k_means_finds_the_best_clustering_of_clear_groups():
    draw = torch.Generator().manual_seed(0)
    points = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[[0, 1, 2, 0, 1, 2, 0]].double()
    points = points + 0.3 * torch.randn(7, 2, generator=draw, dtype=torch.float64)
    cost, expected, _ = best_clustering(points.tolist(), 3)
    for seed in range(10):
        centres, assignment = k_means(points, 3, torch.Generator().manual_seed(seed))
        assert as_groups(assignment.tolist()) == as_groups(expected)
        assert (points - centres[assignment]).square().sum().item() == pytest.approx(cost)


def test_k_means_is_stable_and_leaves_no_cluster_empty():
    draw = torch.Generator().manual_seed(1)
    for k in (2, 5, 20, 40):
        points = torch.randn(40, 3, generator=draw, dtype=torch.float64)
        centres, assignment = k_means(points, k, draw)
        assert torch.equal(assignment.unique(), torch.arange(k))
        for number in range(k):
            torch.testing.assert_close(centres[number], points[assignment == number].mean(0))
        assert torch.equal(torch.cdist(points, centres).argmin(1), assignment)


def test_k_means_of_points_that_coincide_ends():
    _, assignment = k_means(torch.ones(6, 2, dtype=torch.float64), 3, torch.Generator().manual_seed(0))
    assert len(assignment.unique()) == 3
