from collections import Counter

import pytest
import torch

from ccp_dml.certificate.sampling import (
    different_class_pairs,
    one_pair_per_class,
    one_pair_per_two_classes,
    same_class_pairs,
)


@pytest.fixture
def labels():
    """Shuffled classes of 1, 2, 5, 9 and 30 images, with labels that are no counting."""
    labels = torch.tensor([7] * 9 + [-3] * 30 + [2**40] + [0] * 2 + [4] * 5)
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


def draws(function, labels, rounds=300):
    generator = torch.Generator().manual_seed(1)
    return [function(labels, generator) for _ in range(rounds)]


@pytest.mark.parametrize(
    "function", [same_class_pairs, different_class_pairs, one_pair_per_class, one_pair_per_two_classes]
)
def test_no_image_occurs_twice(function, labels):
    for pairs in draws(function, labels, 20):
        assert pairs.shape[1] == 2
        assert len(pairs.unique()) == pairs.numel()


def test_a_class_gives_half_as_many_pairs_as_it_has_images(labels):
    for pairs in draws(same_class_pairs, labels, 20):
        first, second = labels[pairs].unbind(1)
        assert torch.equal(first, second)
        assert Counter(first.tolist()) == {7: 4, -3: 15, 0: 1, 4: 2}


def test_every_two_images_of_a_class_meet_equally_often(labels):
    met = Counter(
        tuple(sorted(pair))
        for pairs in draws(same_class_pairs, labels)
        for pair in pairs.tolist()
        if labels[pair[0]] == 4
    )
    assert len(met) == 10  # of 5 images
    assert max(met.values()) < 2 * min(met.values())


def test_images_of_different_classes_meet_as_often_as_chance_has_it(labels):
    rounds = 400
    met: Counter[frozenset[int]] = Counter()
    for pairs in draws(different_class_pairs, labels, rounds):
        assert (labels[pairs[:, 0]] != labels[pairs[:, 1]]).all()
        met.update(frozenset(pair) for pair in labels[pairs].tolist())
    sizes = Counter(labels.tolist())
    for a, b in ((-3, 7), (-3, 4), (7, 4)):  # 23 pairs of 47 images, each one of 47 * 46 / 2 possible ones
        expected = rounds * 23 * sizes[a] * sizes[b] / (47 * 46 / 2)
        assert met[frozenset((a, b))] == pytest.approx(expected, rel=0.15)


def test_every_class_of_two_images_gives_one_pair(labels):
    for pairs in draws(one_pair_per_class, labels, 20):
        assert sorted(labels[pairs[:, 0]].tolist()) == [-3, 0, 4, 7]
        assert torch.equal(labels[pairs[:, 0]], labels[pairs[:, 1]])


def test_no_class_occurs_in_two_pairs_of_classes(labels):
    seen = set()
    for pairs in draws(one_pair_per_two_classes, labels, 60):
        classes = labels[pairs].flatten().tolist()
        assert len(set(classes)) == 4  # of five classes one is left over
        seen.update(classes)
    assert len(seen) == 5  # even the class of one image has its turn


@pytest.mark.parametrize("labels", [torch.tensor([], dtype=torch.int64), torch.tensor([3])])
@pytest.mark.parametrize(
    "function", [same_class_pairs, different_class_pairs, one_pair_per_class, one_pair_per_two_classes]
)
def test_there_may_be_no_pair(function, labels):
    assert function(labels, torch.Generator()).shape == (0, 2)
