import torch

from ccp_dml.losses import ContrastiveLoss
from ccp_dml.proxies import BatchObjective, ClassProxies, ProxyObjective


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
