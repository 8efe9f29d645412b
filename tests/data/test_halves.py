import pytest
import torch

from ccp_dml.data.features import FeatureRows
from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.splits import divide
from ccp_dml.errors import UserError


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


def test_odd_number_of_classes_trains_on_one_more_and_tells_of_a_lone_test_class():
    divided = halves("ccbbaa")
    assert divided.train.class_names == ("a", "b")
    assert divided.train.positions.tolist() == [2, 3, 4, 5]
    assert divided.train.labels.tolist() == [1, 1, 0, 0]
    assert divided.notes == ("there is only one test class (c): every retrieval will be right",)


def test_training_classes_with_one_image_are_named_with_the_remedy():
    with pytest.raises(UserError, match=r"single image \(b, d\): .* data\.drop_small_classes=true"):
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
