"""Data sets by configuration: how much of them is used."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from ccp_dml.config.schema import DataConfig
from ccp_dml.data.labelled import TestSet
from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import build_data, first_classes, remember_last, with_sizes


def test_only_the_first_classes_of_each_half_are_used(features):
    whole = build_data(DataConfig(name="features", path=str(features)))
    part = build_data(DataConfig(name="features", path=str(features), classes=3))
    for few, all_of_them in ((part.train, whole.train), (part.test.queries, whole.test.queries)):
        assert few.class_names == all_of_them.class_names[:3]
        assert torch.equal(few.positions, all_of_them.positions[all_of_them.labels < 3])
        assert torch.equal(few.labels, all_of_them.labels[all_of_them.labels < 3])


def test_a_gallery_keeps_the_classes_of_its_queries_and_too_many_are_all(features):
    halves = build_data(DataConfig(name="features", path=str(features)))
    halves = replace(halves, test=TestSet(halves.test.queries, halves.test.queries))
    assert first_classes(halves, 2).test.gallery.labels.unique().tolist() == [0, 1]
    assert len(first_classes(halves, 1000).train) == len(halves.train)


def test_reduced_decoding_keeps_what_resizing_needs(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.effect_noise((64, 64), 80 + number).save(tmp_path / name / f"{number}.jpg")
    sides = [
        build_data(
            DataConfig(name="folder", root=str(tmp_path), resize=16, crop=12, **settings)
        ).train.source.decoded_side
        for settings in ({}, {"reduced_decoding": True})
    ]
    assert sides == [None, 16]


def training_transform(image_folder, **settings):
    data = DataConfig(name="folder", root=str(image_folder), resize=36, crop=32, **settings)
    return repr(build_data(data).train.source._train_transform)


def test_an_augmentation_is_a_named_set_and_what_is_set_otherwise(image_folder):
    assert training_transform(image_folder) == training_transform(image_folder, augment=True)
    light = training_transform(image_folder, augment="light")
    assert "RandomRotation(degrees=[-8.0, 8.0]" in light
    assert "ColorJitter" in light
    own = training_transform(image_folder, augment="light", crop_area=(0.5, 0.7), flip=0.25, turn=0, colour=0)
    assert "scale=(0.5, 0.7)" in own
    assert "RandomHorizontalFlip(p=0.25)" in own
    assert "RandomRotation" not in own
    assert "ColorJitter" not in own


def test_without_augmentation_seeds_change_nothing(image_folder):
    for off in (False, "none"):
        part = build_data(DataConfig(name="folder", root=str(image_folder), resize=36, crop=32, augment=off)).train
        rows = torch.arange(3)
        assert torch.equal(part.load(rows, rows), part.load(rows))


@pytest.mark.parametrize(("size", "side"), [((20, 50), 32), ((48, 44), 44), ((300, 200), 64)])
def test_sides_come_from_the_files_within_limits(tmp_path, size, side):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.effect_noise(size, 80 + number).save(tmp_path / name / f"{number}.png")
    data = DataConfig(name="folder", root=str(tmp_path), resize="files", crop="files")
    assert with_sizes(data).pixels == (side, side)
    assert with_sizes(data.model_copy(update={"crop": 24})).pixels == (side, 24)
    assert with_sizes(data.model_copy(update={"resize": 50})).pixels == (50, 50)
    assert build_data(data).train.load(torch.arange(1)).shape == (1, 3, side, side)


def test_sides_come_from_no_files_where_there_are_none(features):
    with pytest.raises(UserError, match="not for features: leave out the mode that asks for it"):
        build_data(DataConfig(name="features", path=str(features), resize="files"))


def test_an_augmentation_that_would_change_nothing_is_refused(image_folder, features):
    with pytest.raises(UserError, match=r"data\.turn is set, but data\.augment=none"):
        build_data(DataConfig(name="folder", root=str(image_folder), augment="none", turn=5))
    for settings in ({"augment": "light"}, {"flip": 0.5}):
        with pytest.raises(UserError, match="features has an augmentation of its own or none"):
            build_data(DataConfig(name="features", path=str(features), **settings))


def test_one_s_own_data_set_is_not_augmented_by_half(tmp_path):
    (tmp_path / "mine.py").write_text("class Data: ...")
    with pytest.raises(UserError, match=r"data\.flip is set, but data\.augment=none"):
        build_data(DataConfig(name=f"{tmp_path}/mine.py:Data", augment="none", flip=0.5, resize=32, crop=28))


def test_a_data_set_is_read_once():
    calls = []
    load = remember_last(lambda data: calls.append(data) or object())
    first, second = DataConfig(name="features", path="a.npz"), DataConfig(name="features", path="b.npz")
    assert load(first) is load(first.model_copy())
    load(second)
    load(first)
    assert calls == [first, second, first]
