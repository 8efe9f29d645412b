"""The pool on a source whose augmentation is noise: seen again, an image must be the same to the last bit."""

import pytest
import torch
from torch import nn

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.foundation.randomness import generator
from ccp_dml.proxies import draw_pool
from ccp_dml.runs.pool import SAMPLED_PROXIES, TrainingPool


class NoisyNumbers:
    """Item i is the number i, plus noise of the augmentation."""

    in_memory = True

    def __init__(self):
        self.loads = 0

    def __len__(self):
        return 10_000

    def load(self, positions, seeds):
        self.loads += 1
        noise = torch.stack([torch.rand(1, generator=torch.Generator().manual_seed(seed)) for seed in seeds.tolist()])
        return positions.unsqueeze(1) + noise / 2


class Scale(nn.Module):
    """Embeds a number as itself, times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def raw(self, inputs):
        return self.weight * inputs


def make_pool(classes=100, size=7):
    labels = torch.arange(classes).repeat_interleave(9)
    names = tuple(str(label) for label in range(classes))
    data = LabelledSet(NoisyNumbers(), torch.arange(len(labels)), labels, names)
    return TrainingPool(data, size, seed=3, batch_size=50, workers=0)


@pytest.mark.parametrize("classes", [5, 100], ids=["all proxies", "some of many proxies"])
def test_origins_are_the_very_images_of_the_pool(classes):
    pool, network = make_pool(classes), Scale()
    embedded = pool.embed(network, problem=4)  # (C, 7, 1)
    taken = torch.stack([torch.randperm(7, generator=torch.Generator().manual_seed(row))[:3] for row in range(classes)])
    sample, again = pool.embed_origins(network, 4, taken)
    chosen = embedded.gather(1, taken.unsqueeze(-1)).flatten(0, 1)  # (C*3, 1)
    assert torch.equal(again, chosen[sample])
    assert len(sample) == len(set(sample.tolist())) == min(SAMPLED_PROXIES, 3 * classes)


def test_origins_are_embedded_by_the_network_of_the_moment_and_loaded_once_per_problem():
    pool, network, taken = make_pool(), Scale(), torch.zeros(100, 1, dtype=torch.int64)
    sample, before = pool.embed_origins(network, 1, taken)
    loads = pool.data.source.loads
    with torch.no_grad():
        network.weight.mul_(2)
    again, after = pool.embed_origins(network, 1, taken)
    assert torch.equal(again, sample)
    assert torch.equal(after, 2 * before)
    assert pool.data.source.loads == loads
    other, _ = pool.embed_origins(network, 2, taken)
    assert pool.data.source.loads > loads
    assert not torch.equal(other, sample)


def test_a_pool_depends_on_seed_and_problem_alone():
    """What a resumed run draws is what the interrupted one would have drawn."""
    network = Scale()
    first, second = make_pool(), make_pool()
    first.embed(network, 1)
    assert torch.equal(first.embed(network, 2), second.embed(network, 2))
    rows = draw_pool(first.data.labels, 7, generator(3, "pool", 2))
    assert torch.equal(second.embed(network, 2).floor().squeeze(-1).long(), rows)


@pytest.mark.parametrize("own", [slice(0, 100), slice(33, 71), slice(99, 100), slice(40, 40)])
@pytest.mark.parametrize("classes", [1, 9, 50, 200])
def test_any_range_of_classes_in_chunks_is_embedded_in_whole_batches(own, classes):
    pool = make_pool()
    sizes = []

    class Noting(Scale):
        def raw(self, inputs):
            sizes.append(len(inputs))
            return super().raw(inputs)

    whole = pool.embed(Scale(), 2)
    chunks = list(pool.embed_in_chunks(Noting(), 2, classes, own))
    assert torch.equal(torch.cat([*chunks, whole[:0]]), whole[own])
    assert all(len(chunk) == classes for chunk in chunks[:-1])
    assert set(sizes) <= {50}, "the company of an image decides about its last digit"
