"""What tests of several processes run in each of them; here, because processes import functions by name."""

import torch
from torch import nn

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import evaluation_batches
from ccp_dml.evaluation import embed, score
from ccp_dml.foundation import process_group
from ccp_dml.foundation.process_group import current
from ccp_dml.foundation.randomness import generator
from ccp_dml.losses.activity import pair_activity, recorded_pairs
from ccp_dml.proxies import ClassProxies
from ccp_dml.runs.pool import TrainingPool


class Vectors:
    """Item i is a random vector, plus noise of its seed in training."""

    in_memory = True

    def __init__(self, count, width=5):
        self.vectors = torch.randn(count, width, generator=generator(1, "vectors"))

    def __len__(self):
        return len(self.vectors)

    def load(self, positions, seeds):
        vectors = self.vectors[positions]
        return vectors if seeds is None else vectors + (seeds % 1000).unsqueeze(1) / 1000


class Projection(nn.Module):
    """A linear layer whose results depend on the last bit on how many rows come together."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4, bias=False)
        nn.init.normal_(self.linear.weight, generator=generator(2, "weights"))

    def raw(self, inputs):
        return self.linear(inputs)

    def forward(self, inputs):
        return nn.functional.normalize(self.linear(inputs), dim=1)


def labelled(classes=13, per_class=5):
    labels = torch.arange(classes).repeat_interleave(per_class)
    return LabelledSet(Vectors(len(labels)), torch.arange(len(labels)), labels, tuple(map(str, range(classes))))


def collective_operations():
    """Try every operation; return what this process sees."""
    processes = current()
    rank, count = processes.rank, processes.count
    weight = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    own = weight * (1 + rank)  # (2,)
    joined = processes.gather(own.unsqueeze(0))  # (count, 2)
    # Every process computes the whole loss; its gradient must be count times the own part's.
    (joined.square().sum(dim=1) * torch.arange(1.0, count + 1)).sum().backward()
    shared = torch.full((2, 3), float(rank)).t()  # not contiguous
    processes.share([shared])
    part = torch.tensor([1.0 + rank, 5.0], dtype=torch.float64, requires_grad=True)
    alike = torch.tensor([2.0, 7.0], dtype=torch.float64, requires_grad=True)
    total = processes.total((processes.hand_out(alike) * part).prod())  # each process has a part of the work
    total.square().backward()
    whole = torch.zeros(7, 2, dtype=torch.int32) if rank == 0 else None
    processes.rows_to_first(torch.arange(14, dtype=torch.int32).view(7, 2)[processes.share_of(7)], whole)
    before = []
    with processes.first_goes_first():
        before.append(rank)
    processes.wait()
    return {
        "joined": joined.detach(),
        "gradient": weight.grad / count,
        "labels": processes.gather(torch.tensor([rank, 10 + rank])),
        "rows": processes.gather_rows([torch.full((rank, 2), rank)] * 2),
        "some have nothing": processes.gather_rows([torch.ones(2, 3)] if rank == 1 else [], torch.device("cpu")),
        "same": processes.same({"rank": rank}),
        "shared": shared,
        "total": (total.item(), alike.grad, part.grad),
        "largest": processes.largest(torch.tensor([rank, -rank])),
        "at the first": whole,
        "share": processes.share_of(10, 3),
        "first": processes.is_first,
    }


def rows_in_pieces():
    """Join rows in the first process, two at a time."""
    processes, process_group.NUMBERS_AT_ONCE = current(), 7
    whole = torch.zeros(10, 3) if processes.is_first else None
    processes.rows_to_first(torch.arange(30.0).view(10, 3)[processes.share_of(10)], whole)
    return whole


def evaluation_and_reselection(sizes=((13, 5), (2, 3))):
    """Score, embed and select at sizes that no number of processes divides."""
    processes, network, found = current(), Projection(), []
    for classes, per_class in sizes:
        data = labelled(classes, per_class)

        def batches(data=data):
            return evaluation_batches(data, 4, processes=processes)

        pool = TrainingPool(data, 7, 3, 4, 0, processes)
        embedded = pool.embed(network, 2)
        proxies = ClassProxies(classes, 3, embedded.shape[2])
        first = proxies.choose_from(embedded, None, "raw", generator(5, "pick"), processes)
        second = proxies.choose_from(embedded, first.vectors, "normalised", processes=processes)
        found.append(
            {
                "embeddings": embed(network, batches(), processes=processes),
                "scores": score(network, batches(), processes=processes),
                "against a gallery": score(network, batches(), batches(), processes=processes),
                "pool": embedded,
                "selections": [(each.vectors, each.taken, each.covering_radius) for each in (first, second)],
            }
        )
    return found


def losses_against_divided_proxies(losses, references):
    """Compute each loss, and its gradients, against references of which each process has its range.

    `references` are (embeddings, labels, ref_embeddings, ref_labels). Returned are, for each loss, its value, the
    gradient of the embeddings, the gradient of the own references, and the shares of active pairs.
    """
    processes, found = current(), []
    embeddings, labels, ref_embeddings, ref_labels = references
    own = processes.share_of(len(ref_labels))
    for loss in losses:
        anchors = embeddings.clone().requires_grad_()
        proxies = ref_embeddings[own].clone().requires_grad_()
        with recorded_pairs() as record:
            value = loss(anchors, labels, proxies, ref_labels[own], processes)
            (3 * value.square()).backward()
        found.append((value.detach(), anchors.grad, proxies.grad, pair_activity(record)))
    return found
