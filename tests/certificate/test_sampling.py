from collections import Counter

import pytest
import torch

from ccp_dml.certificate.sampling import (
    ENOUGH_PER_CLASS,
    different_class_pairs,
    draw_images,
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


def drawn(labels, most, seed=0):
    rows = draw_images(labels, most, torch.Generator().manual_seed(seed))
    assert len(rows) <= most
    assert len(rows.unique()) == len(rows)
    return rows


def test_a_small_set_is_taken_whole():
    labels = torch.arange(50) % 7
    assert drawn(labels, 50).tolist() == list(range(50))


def test_large_classes_are_cut_before_any_class_is_given_up():
    labels = torch.tensor([0] * 1000 + [1] * 500 + [2] * 15)
    rows = drawn(labels, 215)
    assert torch.bincount(labels[rows]).tolist() == [100, 100, 15]
    assert not torch.equal(rows, drawn(labels, 215, seed=1))
    assert rows[:100].max() > 500  # drawn from the whole class, not its first images


def test_many_small_classes_are_drawn_whole_and_fairly():
    labels = torch.arange(300).repeat_interleave(4)
    times = torch.zeros(300)
    for seed in range(200):
        sizes = torch.bincount(labels[drawn(labels, 120, seed)], minlength=300)
        assert set(sizes.tolist()) == {0, 4}
        assert sizes.sum() == 120
        times += sizes > 0
    assert times.min() > 5  # 20 expected of each, none preferred
    assert times.max() < 40


def test_classes_that_are_left_keep_enough_images():
    labels = torch.arange(50).repeat_interleave(40)
    sizes = torch.bincount(labels[drawn(labels, 100)], minlength=50)
    assert sorted(set(sizes.tolist())) == [0, ENOUGH_PER_CLASS]
    assert (sizes > 0).sum() == 100 // ENOUGH_PER_CLASS


@pytest.mark.parametrize("most", [1, 2, 7, 9])
def test_fewer_images_than_a_class_has_are_of_one_class(most):
    labels = torch.arange(4).repeat_interleave(8)
    rows = draw_images(labels, most, torch.Generator().manual_seed(0))
    assert len(rows) == min(most, 8)
    assert len(labels[rows].unique()) == 1
