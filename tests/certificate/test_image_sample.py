import pytest
import torch

from ccp_dml.certificate.sampling import ENOUGH_PER_CLASS, draw_images


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
