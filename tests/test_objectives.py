import pytest
import torch

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss
from ccp_dml.objectives import BatchObjective, ProxyObjective, balanced_share
from ccp_dml.proxies import ClassProxies


def setting():
    torch.manual_seed(0)
    proxies = ClassProxies(3, 2, 4)
    proxies.place(torch.randn(3, 2, 4))
    return torch.randn(9, 4, requires_grad=True), torch.arange(3).repeat(3), proxies, ContrastiveLoss(0.1, 0.9)


def test_proxy_loss_plus_a_share_of_the_batch_loss():
    embeddings, labels, proxies, loss = setting()
    references = proxies.vectors.reshape(6, 4)
    against_proxies = loss(embeddings, labels, references, torch.tensor([0, 0, 1, 1, 2, 2]))
    within_batch = loss(embeddings, labels)
    torch.testing.assert_close(
        ProxyObjective(loss, proxies, 0.3)(embeddings, labels), against_proxies + 0.3 * within_batch
    )
    torch.testing.assert_close(ProxyObjective(loss, proxies, 0.0)(embeddings, labels), against_proxies)
    torch.testing.assert_close(BatchObjective(loss)(embeddings, labels), within_batch)


LOSSES = [ContrastiveLoss(0.1, 0.9), CosineContrastiveLoss(0.2), MultiSimilarityLoss(), TripletLoss(0.5)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("dtype", "balance"), [(torch.float32, 3.0), (torch.bfloat16, 3.0), (torch.float32, 0.5)])
def test_balanced_batch_pulls_so_many_times_as_hard_as_proxies_whatever_the_loss(loss, dtype, balance):
    embeddings, labels, proxies, _ = setting()
    embeddings = embeddings.detach().to(dtype).requires_grad_()
    used = embeddings.float()
    against_proxies, within_batch = loss(used, labels, *proxies()), loss(used, labels)
    of_proxies, of_batch = (
        torch.autograd.grad(term, used, retain_graph=True)[0] for term in (against_proxies, within_batch)
    )
    share = of_batch.norm() / (balance * of_proxies.norm())
    assert 0.01 < share < 100
    objective = ProxyObjective(loss, proxies, "balanced", balance)(embeddings, labels)
    torch.testing.assert_close(objective, within_batch + share * against_proxies)
    objective.backward()  # once more through what was differentiated for the share
    torch.testing.assert_close(embeddings.grad, (of_batch + share * of_proxies).to(dtype))
    of_vectors = torch.autograd.grad(against_proxies, proxies.vectors)[0]
    torch.testing.assert_close(proxies.vectors.grad, share * of_vectors)


def test_the_share_of_proxies_is_bounded_and_needs_something_to_balance():
    embeddings, labels, proxies, loss = setting()
    against_proxies, within_batch = loss(embeddings, labels, *proxies()), loss(embeddings, labels)
    assert balanced_share(against_proxies, 1e-9 * within_batch, embeddings).item() == pytest.approx(0.01)
    assert balanced_share(1e-9 * against_proxies, within_batch, embeddings) == 100
    objective = ProxyObjective(loss, proxies, "balanced")
    apart = (2 * torch.eye(4)[:3].repeat(3, 1)).requires_grad_()  # each class in one place: both margins are met
    assert loss(apart, labels) == 0
    torch.testing.assert_close(objective(apart, labels), 0.01 * loss(apart, labels, *proxies()))
    proxies.place(2 * torch.eye(4)[:3].unsqueeze(1).repeat(1, 2, 1))  # now the proxies meet them, too
    total = objective(apart, labels)
    total.backward()
    assert total == 0
    assert torch.equal(apart.grad, torch.zeros_like(apart))
    with torch.no_grad():
        assert torch.isfinite(objective(embeddings.detach(), labels))


def test_a_loss_that_is_a_plain_zero_without_pairs_can_be_balanced():
    embeddings, labels, proxies, loss = setting()

    def of_own(embeddings, labels, *references):
        return loss(embeddings, labels, *references) if references else torch.zeros(())

    total = ProxyObjective(of_own, proxies, "balanced")(embeddings, labels)
    torch.testing.assert_close(total, 0.01 * loss(embeddings, labels, *proxies()))
    total.backward()
    assert embeddings.grad.any()
    with torch.no_grad():  # what is only measured has no gradients to balance
        expected = loss(embeddings, labels) + loss(embeddings, labels, *proxies())
        assert ProxyObjective(loss, proxies, "balanced")(embeddings, labels) == expected


def test_the_share_does_not_depend_on_the_side_of_the_sphere_that_rounding_chose():
    """Just inside of it, the loss pulls outwards, too; a network that normalises does not feel that."""
    embeddings, labels, proxies, loss = setting()
    unit = torch.nn.functional.normalize(embeddings.detach(), dim=1)
    shares = []
    for length in (1 + 1e-6, 1 - 1e-6):
        embeddings = (length * unit).requires_grad_()
        terms = loss(embeddings, labels, *proxies()), loss(embeddings, labels)
        shares.append((balanced_share(*terms, embeddings), torch.autograd.grad(terms[0], embeddings)[0].norm()))
    (outside, gradient_outside), (inside, gradient_inside) = shares
    assert gradient_inside > 1.01 * gradient_outside
    torch.testing.assert_close(inside, outside, rtol=1e-4, atol=0)


def test_gradients_reach_embeddings_and_proxies():
    embeddings, labels, proxies, loss = setting()
    ProxyObjective(loss, proxies)(embeddings, labels).backward()
    assert embeddings.grad.abs().sum() > 0
    assert proxies.vectors.grad.abs().sum() > 0
    assert [name for name, _ in ProxyObjective(loss, proxies).named_parameters()] == ["proxies.vectors"]


def test_proxies_that_are_not_placed_do_not_count():
    embeddings, labels, _, loss = setting()
    objective = ProxyObjective(loss, ClassProxies(3, 2, 4))
    torch.testing.assert_close(objective(embeddings, labels), loss(embeddings, labels))
    placed = ProxyObjective(loss, ClassProxies(3, 2, 4))
    placed.proxies.place(torch.randn(3, 2, 4))
    objective.load_state_dict(placed.state_dict())  # a resumed run knows
    assert objective.proxies.placed


@pytest.mark.parametrize("placed", [False, True])
def test_labels_of_classes_without_proxies_are_refused(placed):
    embeddings, labels, proxies, loss = setting()
    proxies.placed = placed
    objective = ProxyObjective(loss, proxies)
    for wrong, found in ((labels + 1, "1 to 3"), (labels - 1, "-1 to 1"), (labels.to(torch.uint8) + 200, "200 to 202")):
        expected = rf"^labels must lie in 0\.\.2, as there are vectors of 3 classes; got {found}\. Number the labels"
        with pytest.raises(ValueError, match=expected):
            objective(embeddings, wrong)
    torch.testing.assert_close(objective(embeddings, labels.to(torch.uint8)), objective(embeddings, labels))
    with pytest.raises(ValueError, match="labels must be"):
        objective(embeddings, labels.tolist())


@pytest.mark.parametrize("pair_weight", [0.1, "balanced"])
def test_a_device_is_not_waited_for_to_look_at_labels(pair_weight):
    """Tensors on the device "meta" have no values that anybody could wait for."""
    _, labels, proxies, loss = setting()
    embeddings = torch.zeros(9, 4, device="meta", requires_grad=True)
    objective = ProxyObjective(loss, proxies.to("meta"), pair_weight)
    objective(embeddings, labels.to("meta")).backward()
    assert embeddings.grad is not None


def test_a_weight_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="a number or 'balanced', got 'Balanced'"):
        ProxyObjective(ContrastiveLoss(0.1, 0.9), ClassProxies(3, 2, 4), "Balanced")
    for wrong in ((-0.1, 3.0), (float("nan"), 3.0), ("balanced", 0.0)):
        with pytest.raises(ValueError, match="pair_weight must not be negative, and balance above 0"):
            ProxyObjective(ContrastiveLoss(0.1, 0.9), ClassProxies(3, 2, 4), *wrong)
