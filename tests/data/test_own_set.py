"""Data sets of a user's own: what they must have, how their items become inputs."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from ccp_dml.data.files.images import ImageReading
from ccp_dml.data.own_set import OwnImages, own_halves
from ccp_dml.data.transforms import eval_transform, train_transform
from ccp_dml.errors import UserError

VIEWS = {"train_transform": train_transform(12, 8), "eval_transform": eval_transform(12, 8)}


SEEDS = torch.tensor([3, 4])


class Items(list):
    """A data set of items and their labels."""

    def __init__(self, items, targets=None, **more):
        super().__init__(items)
        if targets is not None:
            self.targets = targets
        vars(self).update(more)


def images(count, side=12):
    draw = np.random.default_rng(0)
    return [draw.integers(0, 255, (side, side, 3), dtype=np.uint8) for _ in range(count)]


def halves(data, test_share=0.5, **more):
    return own_halves(data, ImageReading(**VIEWS, **more), origin="my.py:Data", test_share=test_share)


def test_the_first_half_of_the_classes_trains():
    pictures = images(8)
    found = halves(Items([(one, 0) for one in pictures], ["b", "a", "b", "a", "d", "c", "d", "c"]))
    assert found.train.class_names == ("a", "b")
    assert found.test.queries.class_names == ("c", "d")
    assert found.train.positions.tolist() == [0, 1, 2, 3]
    seen = found.train.load(torch.tensor([0]))
    assert torch.equal(seen[0], torch.from_numpy(pictures[0]).permute(2, 0, 1)[:, 2:10, 2:10])
    one, again, other = (found.train.load(torch.tensor([0, 1]), torch.tensor([seed, 7])) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])  # an item's own seed decides, and no other


def test_fewer_classes_may_test():
    found = halves(Items(images(8), np.arange(8) // 2), test_share=0.25)
    assert found.test.queries.class_names == ("3",)
    assert not found.says_what_tests


def test_a_share_has_no_effect_where_the_data_say_what_tests():
    given = halves(Items(images(8), np.arange(8) // 2, split=["test"] * 4 + ["train"] * 4))
    assert given.says_what_tests
    with pytest.raises(UserError, match=r"^my\.py:Data says itself which items test, so that `test_share`=0\.25"):
        halves(given, test_share=0.25)


def test_a_split_of_its_own_decides():
    split = ["test"] * 4 + ["train"] * 4
    found = halves(Items(images(8), np.arange(8) // 2, split=split))
    assert found.train.class_names == ("2", "3")
    assert halves(Items(images(8), np.arange(8) // 2, split="train")).train.class_names == (
        "0",
        "1",
    )  # as torchvision's


def test_images_may_be_files_pictures_or_arrays(tmp_path):
    Image.new("L", (20, 12), 7).save(tmp_path / "one.png")
    items = [tmp_path / "one.png", (tmp_path / "one.png").read_bytes(), images(1)[0], Image.new("L", (12, 12))]
    labels = torch.arange(8) // 2
    found = halves(Items([*items, *items], labels, names=list("abcdefgh")))
    assert found.train.load(torch.arange(4)).shape == (4, 3, 8, 8)
    assert found.train.source.name(1) == "b"
    assert halves(Items(images(8), labels)).train.source.name(1) == "item 1"


def test_images_that_are_tensors_already_are_refused_with_the_way_to_leave_them_as_they_were():
    with pytest.raises(
        UserError, match=r"^item 0 of my\.py:Data is no image \(it is a tensor \(3, 8, 8\); .*ToTensor\(\)"
    ):
        halves(Items(torch.rand(8, 3, 8, 8), torch.arange(8) // 2))


def test_vectors_are_features():
    rows = torch.arange(16.0).reshape(8, 2)
    found = halves(Items([(row, 0) for row in rows], [0, 0, 1, 1, 2, 2, 3, 3]))
    assert torch.equal(found.train.load(torch.arange(4)), rows[:4])


@pytest.mark.parametrize("convert", [torch.Tensor.bfloat16, torch.Tensor.double, torch.Tensor.requires_grad_])
def test_vectors_may_come_out_of_a_network(convert):
    rows = torch.arange(16.0).reshape(8, 2)
    found = halves(Items([convert(row.clone()) for row in rows], [0, 0, 1, 1, 2, 2, 3, 3]))
    assert torch.equal(found.train.load(torch.arange(4)), rows[:4])


@pytest.mark.parametrize("wrap", [torch.tensor, np.array, np.int64])
def test_targets_may_be_tensors_one_by_one(wrap):
    """Their texts, "tensor(10)" and "tensor(2)", would be sorted as words, and other classes would train."""
    numbers = np.arange(24) // 2
    found = halves(Items(list(torch.ones(24, 2)), [wrap(number) for number in numbers.tolist()]))
    assert found.train.class_names == ("0", "1", "2", "3", "4", "5")


def test_complete_halves_are_taken_as_they_are():
    found = halves(Items(images(8), [0, 0, 1, 1, 2, 2, 3, 3]))
    assert halves(found) is found


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (SimpleNamespace(), "my.py:Data is no data set but SimpleNamespace: it needs __len__ and __getitem__"),
        (Items(images(2)), "has no attribute `targets`"),
        (Items(images(2), [1]), "has 2 items but 1 targets"),
        (Items([], []), "my.py:Data is empty"),
        (Items(images(4), [0, 0, 1, 1], split=["train"]), "4 items but 1 entries of split"),
        (Items(images(4), [0, 0, 1, 1], split=["train", "dev"] * 2), "has split 'dev'"),
        (Items([*torch.ones(3, 2), torch.ones(3)], [0, 0, 1, 1]), r"item 3 of my.py:Data is of shape \(3,\), but"),
        (Items([*torch.ones(3, 2), None], [0, 0, 1, 1]), "item 3 of my.py:Data is of type NoneType, but item 0 is"),
        (Items([*torch.ones(3, 2), torch.full((2,), torch.nan)], [0, 0, 1, 1]), "item 3 of my.py:Data has NaN"),
        (Items(["gone.png", "gone.png"], [0, 1]), r"item 0 of my.py:Data is no image \(there is no such file\)"),
    ],
)
def test_what_is_missing_is_said(data, message):
    with pytest.raises(UserError, match=message):
        halves(data)


def test_signatures_tell_contents_apart():
    first, second = (halves(Items(images(8, side), np.arange(8) // 2)).train for side in (12, 13))
    assert first.source.signature(first.positions) != second.source.signature(second.positions)
    assert first.source.signature(first.positions) == first.source.signature(first.positions)


imported = []


def note_import():
    imported.append(True)


def test_another_process_imports_the_code_first():
    source = OwnImages(Items(images(2), [0, 1]), *VIEWS.values(), "mine", note_import)
    imported.clear()
    copied = pickle.loads(pickle.dumps(source))
    assert imported == [True]
    assert torch.equal(copied.load(torch.arange(2), SEEDS), source.load(torch.arange(2), SEEDS))
