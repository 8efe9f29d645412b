from dataclasses import replace

import pytest
import torch

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import DataHalves, LabelledSet
from ccp_dml.data.splits import (
    class_quarters,
    divide,
    everything_trains,
    fold_split,
    halve_classes,
    hold_out_images,
    hold_out_nothing,
    order_classes,
)
from ccp_dml.errors import UserError


def ten_classes() -> LabelledSet:
    """Three items of each of ten classes, interleaved; item i has the feature i."""
    features = torch.arange(30.0).unsqueeze(1)
    return LabelledSet(FeatureRows(features), torch.arange(30), torch.arange(30) % 10, tuple("abcdefghij"))


def test_classes_are_ordered_numerically_only_if_all_are_integers():
    assert order_classes(["10", "9", "-3", "10"]) == ["-3", "9", "10"]
    assert order_classes(["10", "9", "b"]) == ["10", "9", "b"]
    assert order_classes(["002.B", "001.A", "010.C"]) == ["001.A", "002.B", "010.C"]
    assert order_classes(["1", "01"]) == ["01", "1"]


@pytest.mark.parametrize(("classes", "training"), [(200, 100), (196, 98), (5, 3), (2, 1)])
def test_first_half_trains_and_is_the_larger_one(classes, training):
    assert halve_classes(classes) == (list(range(training)), list(range(training, classes)))


@pytest.mark.parametrize(("classes", "folds"), [(100, 4), (98, 4), (11318, 4), (7, 3), (5, 5)])
def test_quarters_are_contiguous_complete_and_of_nearly_equal_size(classes, folds):
    parts = class_quarters(classes, folds)
    assert len(parts) == folds
    assert [c for part in parts for c in part] == list(range(classes))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_fold_split_divides_by_class_and_renumbers():
    data = ten_classes()
    validated = []
    for fold in range(4):
        train, validation = fold_split(data, fold)
        assert not set(train.class_names) & set(validation.class_names)
        assert len(train) + len(validation) == 30
        validated += validation.class_names
        for part in (train, validation):
            originals = part.load(torch.arange(len(part))).squeeze(1).long()
            assert [part.class_names[c] for c in part.labels] == ["abcdefghij"[i % 10] for i in originals]
            assert part.labels.unique().tolist() == list(range(len(part.class_names)))
    assert validated == list("abcdefghij")


@pytest.mark.parametrize("fold", [-1, 4])
def test_fold_out_of_range_names_the_setting(fold):
    with pytest.raises(UserError, match=rf"`fold`={fold} is out of range: choose 0 to 3"):
        fold_split(ten_classes(), fold)


def test_a_single_fold_is_an_error():
    with pytest.raises(UserError, match=r"`folds`=1 leaves no classes"):
        fold_split(ten_classes(), 0, folds=1)


def test_folds_of_one_class_are_an_error():
    assert len(fold_split(ten_classes(), 0, folds=5)[1].class_names) == 2
    with pytest.raises(UserError, match=r"10 training classes are too few for `folds`=6"):
        fold_split(ten_classes(), 0, folds=6)


def three_classes(sizes=(8, 9, 12)) -> LabelledSet:
    """Classes of different sizes, one after the other; item i has the feature i."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return LabelledSet(
        FeatureRows(torch.arange(float(len(labels)))[:, None]), torch.arange(len(labels)), labels, (*"abc",)
    )


def test_images_are_held_out_of_every_class_in_contiguous_parts():
    data = three_classes()
    validated = []
    for fold in range(4):
        train, validation = hold_out_images(data, fold)
        assert train.class_names == validation.class_names == ("a", "b", "c")
        assert not set(train.positions.tolist()) & set(validation.positions.tolist())
        assert len(train) + len(validation) == 29
        assert validation.labels.bincount().tolist() in ([2, 2, 3], [2, 3, 3])
        for part in (train, validation):
            assert part.labels.tolist() == data.labels[part.positions].tolist()
        validated += validation.positions.tolist()
    assert sorted(validated) == list(range(29))
    assert hold_out_images(data, 1)[1].positions.tolist() == [2, 3, 10, 11, 20, 21, 22]


def test_images_cannot_be_held_out_of_a_small_class():
    with pytest.raises(UserError, match=r"class b has 7 training images, too few .* `folds`=4"):
        hold_out_images(three_classes((8, 7, 8)), 0)


@pytest.mark.parametrize(("fold", "folds"), [(-1, 4), (4, 4), (0, 1)])
def test_fold_of_images_out_of_range(fold, folds):
    with pytest.raises(UserError, match=rf"`folds?`={fold if folds > 1 else folds}"):
        hold_out_images(three_classes(), fold, folds)


def halves(labels: str, splits: str | None = None, drop_small_classes: bool = False) -> DataHalves:
    """One letter per item: its label, and r (train) or e (test) for its split."""
    source = FeatureRows(torch.zeros(len(labels), 1))
    given = None if splits is None else [{"r": "train", "e": "test"}[letter] for letter in splits]
    return divide(source, list(labels), given, origin="the letters", drop_small_classes=drop_small_classes)


def test_only_one_class():
    with pytest.raises(UserError, match=r"the letters has only one class \(a\)"):
        halves("aaaa")


def test_one_training_class_is_not_enough():
    with pytest.raises(UserError, match="the letters has 1 training class with two images or more"):
        halves("aabb")
    with pytest.raises(UserError, match="the letters has no training class"):
        halves("aabb", "eeee")


def test_two_classes_may_both_train():
    source = FeatureRows(torch.zeros(4, 1))
    with pytest.raises(UserError, match=r"add classes, or let all train and none test with `test_share`=0$"):
        divide(source, list("aabb"), None, origin="the letters", test_share=0.5)
    with pytest.raises(UserError, match=r"them apart: add classes$"):  # no share decides where splits are given
        halves("aabb", "rree")


def test_classes_of_one_image_each_need_images():
    with pytest.raises(UserError, match=r"^every training class of the letters has a single image: add images"):
        halves("abcd")
    with pytest.raises(UserError, match=r"no training class with two images or more.*: add images$"):
        halves("abcd", drop_small_classes=True)


def test_odd_number_of_classes_trains_on_one_more_and_tells_of_a_lone_test_class():
    divided = halves("ccbbaa")
    assert divided.train.class_names == ("a", "b")
    assert divided.train.positions.tolist() == [2, 3, 4, 5]
    assert divided.train.labels.tolist() == [1, 1, 0, 0]
    assert divided.notes == ("there is only one test class (c): every retrieval will be right",)


def test_training_classes_with_one_image_are_named_with_the_remedy():
    with pytest.raises(UserError, match=r"single image \(b, d\): .* `drop_small_classes`=true"):
        halves("aabccdeeffgghh")


def test_training_classes_with_one_image_are_left_out_if_asked_and_others_keep_their_half():
    divided = halves("aabccdeeffgghh", drop_small_classes=True)
    assert divided.train.class_names == ("a", "c")
    assert divided.train.positions.tolist() == [0, 1, 3, 4]
    assert divided.train.labels.tolist() == [0, 0, 1, 1]
    assert divided.test.queries.class_names == ("e", "f", "g", "h")
    assert divided.notes == ("left out 2 training classes with a single image: b, d",)


def test_test_classes_with_one_image_stay():
    divided = halves("aabbccd")
    assert divided.test.queries.class_names == ("c", "d")
    assert len(divided.test.queries) == 3


def test_nothing_to_retrieve_is_an_error():
    with pytest.raises(UserError, match="no test class with two images"):
        halves("aabbcd")
    with pytest.raises(UserError, match="no test class with two images"):
        halves("aabb", "rrrr")


def test_classes_on_both_sides_are_noted():
    divided = halves("aabbaacc", "rrrreeee")
    assert divided.test.queries.positions.tolist() == [4, 5, 6, 7]
    assert divided.notes == ("1 classes both train and test, so scores are not of unseen classes: a",)


@pytest.mark.parametrize(("one", "other"), [("Wren", "wren"), ("Caf\u00e9", "Cafe\u0301")])
@pytest.mark.parametrize("split", [["train"] * 4 + ["test"] * 4, ["test"] * 2 + ["train"] * 4 + ["test"] * 2, None])
def test_names_that_look_alike_are_told_on_one_side_and_on_both(one, other, split):
    labels = [name for name in ("a", one, other, "b") for _ in range(2)]
    notes = divide(FeatureRows(torch.zeros(8, 1)), labels, split, origin="rows").notes
    (told,) = [note for note in notes if "differ only in case or Unicode form" in note]
    assert repr(one) in told
    assert repr(other) in told


@pytest.mark.parametrize(("share", "testing"), [(0.5, 3), (0.2, 1), (0.0, 0), (0.01, 1), (0.9, 6)])
def test_another_share_of_the_classes_may_test(share, testing):
    assert [len(part) for part in halve_classes(7, share)] == [7 - testing, testing]


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_share_in_percent_of_a_hundred_classes_is_so_many_classes(percent):
    assert len(halve_classes(100, percent / 100)[1]) == percent


def test_without_a_share_nothing_tests():
    source, labels = FeatureRows(torch.zeros(8, 1)), list("aabbccdd")
    halves = divide(source, labels, None, origin="the letters", test_share=0.0)
    assert (len(halves.train), len(halves.test.queries), halves.test.queries.class_names) == (8, 0, ())
    assert halves.digest


def test_a_share_beside_given_splits_is_refused():
    with pytest.raises(UserError, match=r"says itself which images test, so that `test_share`=0\.2 has no effect"):
        divide(FeatureRows(torch.zeros(4, 1)), list("aabb"), ["train"] * 2 + ["test"] * 2, origin="x", test_share=0.2)


def test_everything_trains_with_one_class_per_name():
    both = halves("aabbccbb", "rrrreeee")
    joined = everything_trains(both)
    assert joined.train.class_names == ("a", "b", "c")
    found = dict(zip(joined.train.positions.tolist(), joined.train.labels.tolist(), strict=True))
    assert "".join("abc"[found[position]] for position in range(8)) == "aabbccbb"
    assert len(joined.test.queries) == 0
    assert joined.digest != both.digest


def test_halves_of_two_sources_stay_apart():
    one, other = halves("aabbccdd"), halves("aabbccdd")
    with pytest.raises(UserError, match="`hold_out`=classes"):
        everything_trains(replace(one, test=other.test))


def test_nothing_is_held_out_and_a_fold_is_watched():
    train = halves("aabbccddeeff", "r" * 10 + "ee").train
    learned, watched = hold_out_nothing(train, 1, 2)
    assert learned is train
    assert watched.class_names == ("c", "d", "e")
    assert hold_out_nothing(train, 0, 4)[1] is train  # five classes are too few to choose among
