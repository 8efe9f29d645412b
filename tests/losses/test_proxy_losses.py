"""ProxyAnchor, ProxyNCA++ and SoftTriple against their papers' formulas, term by term in plain numbers."""

import math

import pytest
import torch
import torch.nn.functional as F

from ccp_dml.losses import ProxyAnchorLoss, ProxyNcaPlusPlusLoss, SoftTripleLoss

CLASSES, DIM = 5, 6
LABELS = [0, 0, 1, 3, 3, 3]  # classes 2 and 4 are not in the batch


@pytest.fixture
def batch():
    return torch.randn(len(LABELS), DIM, generator=torch.Generator().manual_seed(1)), torch.tensor(LABELS)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def parameter(loss):
    (value,) = [value for value in loss.parameters() if value.requires_grad]
    return value


def proxy_anchor(samples, labels, proxies, margin, alpha):
    """Kim et al. 2020, equation 4."""
    pull, push, with_positives = 0.0, 0.0, 0
    for number, proxy in enumerate(proxies):
        similarities = [(label == number, cosine(sample, proxy)) for sample, label in zip(samples, labels, strict=True)]
        positives = [math.exp(-alpha * (s - margin)) for same, s in similarities if same]
        negatives = [math.exp(alpha * (s + margin)) for same, s in similarities if not same]
        pull += math.log(1 + sum(positives))
        push += math.log(1 + sum(negatives))
        with_positives += bool(positives)
    return pull / with_positives + push / len(proxies)


@pytest.mark.parametrize(("margin", "alpha"), [(0.1, 32.0), (0.3, 8.0)])
def test_proxy_anchor(batch, margin, alpha):
    loss = ProxyAnchorLoss(margin, alpha, classes=CLASSES, dim=DIM, seed=3)
    expected = proxy_anchor(batch[0].tolist(), LABELS, loss.proxies.tolist(), margin, alpha)
    assert loss(*batch).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_proxy_nca_plus_plus(batch, temperature):
    loss = ProxyNcaPlusPlusLoss(temperature, classes=CLASSES, dim=DIM, seed=3)
    terms = []
    for sample, label in zip(batch[0].tolist(), LABELS, strict=True):
        # The squared distance of two vectors of unit length is 2 - 2 cos.
        weights = [math.exp(-(2 - 2 * cosine(sample, proxy)) / temperature) for proxy in parameter(loss).tolist()]
        terms.append(-math.log(weights[label] / sum(weights)))
    assert loss(*batch).item() == pytest.approx(sum(terms) / len(terms), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.045, 0.02, 0.005])
def test_samples_far_from_their_proxy_count_at_any_temperature_of_proxy_nca(temperature):
    loss = ProxyNcaPlusPlusLoss(temperature, classes=3, dim=2)
    with torch.no_grad():
        parameter(loss).copy_(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.1]]))
    samples = torch.tensor([[-1.0, 0.0], [0.5, 0.5], [2.0, -0.1]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2], dtype=torch.uint8)  # the first and the last are at the proxy of another class
    cosines = F.normalize(samples, dim=1) @ F.normalize(parameter(loss).detach().double(), dim=1).T
    expected = F.cross_entropy((2 * cosines - 2) / temperature, labels.long())
    (wanted,) = torch.autograd.grad(expected, samples)
    given = samples.detach().float().requires_grad_()
    found = loss(given, labels)
    found.backward()
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(given.grad, wanted.float(), rtol=1e-3, atol=1e-3)
    assert parameter(loss).grad.any()
    assert loss(given[:0], labels[:0]) == 0
    with pytest.raises(ValueError, match="labels must lie in"):
        loss(given, labels + 3)


@pytest.mark.parametrize(
    ("la", "gamma", "tau", "margin", "centres"),
    [(20.0, 0.1, 0.2, 0.01, 3), (17.69, 19.18, 0.0669, 0.3588, 4), (5.0, 0.5, 0.0, 0.1, 2), (5.0, 0.5, 0.9, 0.1, 1)],
)
def test_soft_triple(batch, la, gamma, tau, margin, centres):
    loss = SoftTripleLoss(la, gamma, tau, margin, centres, classes=CLASSES, dim=DIM, seed=3)
    all_centres = parameter(loss).T.tolist()  # class after class
    of_class = [all_centres[number * centres : (number + 1) * centres] for number in range(CLASSES)]
    terms = []
    for sample, label in zip(batch[0].tolist(), LABELS, strict=True):
        logits = []
        for number in range(CLASSES):
            similarities = [cosine(sample, centre) for centre in of_class[number]]
            weights = [math.exp(s / gamma) for s in similarities]
            relaxed = sum(w * s for w, s in zip(weights, similarities, strict=True)) / sum(weights)
            logits.append(la * (relaxed - margin * (number == label)))
        terms.append(-logits[label] + math.log(sum(math.exp(value) for value in logits)))
    expected = sum(terms) / len(terms)
    # Qian et al. 2019, equations 11 and 12: the distances of a class's centres, over C K (K - 1).
    for group in of_class:
        for j in range(centres):
            for k in range(j + 1, centres):
                expected += tau * math.sqrt(2 - 2 * cosine(group[j], group[k])) / (CLASSES * centres * (centres - 1))
    assert loss(*batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_regulariser_of_soft_triple_draws_the_centres_of_a_class_together():
    with_term, without = (SoftTripleLoss(tau=tau, centres_per_class=2, classes=2, dim=2) for tau in (1.0, 0.0))
    batch = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1])
    gradients = []
    for loss in (with_term, without):
        with torch.no_grad():  # columns: two centres of class 0 at right angles, two of class 1 that coincide
            parameter(loss).copy_(torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]]))
        loss(*batch).backward()
        gradients.append(parameter(loss).grad)
    of_term = gradients[0] - gradients[1]
    assert torch.isfinite(gradients[0]).all()
    assert of_term[1, 0] < 0  # descent turns (1, 0) upwards
    assert of_term[0, 1] < 0  # and (0, 1) to the right
    torch.testing.assert_close(of_term[:, 2:], torch.zeros(2, 2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("make", [ProxyAnchorLoss, ProxyNcaPlusPlusLoss, SoftTripleLoss])
class TestEveryProxyLoss:
    def test_draws_a_sample_to_its_proxy_and_the_proxy_to_the_sample(self, make):
        loss = make(classes=2, dim=2)
        value = parameter(loss)
        towards_right = [1.0, 0.0] if value.shape[0] == 2 and make is not SoftTripleLoss else None
        with torch.no_grad():
            if towards_right:
                value.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
            else:  # ten centres per class, as columns
                value.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.0]]).repeat_interleave(10, dim=1))
        sample = torch.tensor([[0.0, 1.0]], requires_grad=True)
        loss(sample, torch.tensor([0])).backward()
        assert sample.grad[0, 0] < 0  # descent moves the sample right, to the proxy of class 0
        of_proxy = value.grad[0] if towards_right else value.grad[:, :10].sum(1)
        assert of_proxy[1] < 0  # and the proxy up, to the sample

    def test_first_proxies_depend_on_the_seed_alone(self, make):
        state = torch.get_rng_state()
        first, again, other = (parameter(make(classes=4, dim=3, seed=seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), state)

    def test_length_does_not_matter(self, make, batch):
        loss = make(classes=CLASSES, dim=DIM)
        torch.testing.assert_close(loss(batch[0] * 7, batch[1]), loss(*batch))

    def test_half_precision_leaves_the_proxies_as_they_are(self, make, batch):
        loss = make(classes=CLASSES, dim=DIM)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(batch[0].bfloat16(), batch[1])
        assert value.dtype == parameter(loss).dtype == torch.float32
        torch.testing.assert_close(value, loss(batch[0].bfloat16().float(), batch[1]))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (ProxyAnchorLoss, {"alpha": 0.0}),
        (ProxyNcaPlusPlusLoss, {"temperature": 0.0}),
        (SoftTripleLoss, {"gamma": 0.0}),
        (SoftTripleLoss, {"la": -1.0}),
        (SoftTripleLoss, {"centres_per_class": 0}),
    ],
)
def test_impossible_arguments(make, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make(**wrong, classes=3, dim=2)
