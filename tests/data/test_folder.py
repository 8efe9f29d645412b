import pytest
import torch

from ccp_dml.data.folder import load_folder
from ccp_dml.errors import UserError


def test_first_half_of_the_classes_trains(write_images, transforms):
    root = write_images("002.B/1.png", "002.B/2.jpg", "001.A/1.png", "001.A/2.PNG", "003.C/1.png", "003.C/2.png")
    halves = load_folder(root, **transforms)
    assert halves.train.class_names == ("001.A", "002.B")
    assert halves.test.queries.class_names == ("003.C",)
    assert halves.train.labels.tolist() == [0, 0, 1, 1]
    assert [halves.train.source.name(p) for p in halves.train.positions] == [
        str(root / name) for name in ("001.A/1.png", "001.A/2.PNG", "002.B/1.png", "002.B/2.jpg")
    ]
    inputs = halves.test.queries.load(torch.tensor([1, 0]))
    assert inputs[:, 0, 0, 0].tolist() == [45, 36]


def test_classes_with_integer_names_are_ordered_by_number(write_images, transforms):
    root = write_images(*(f"{name}/{i}.png" for name in (1, 2, 10, 11) for i in range(2)))
    assert load_folder(root, **transforms).train.class_names == ("1", "2")


def test_train_and_test_folders_are_the_split(write_images, transforms):
    names = ("test/a", "test/b", "train/x", "train/y", "train/z", "val/q")
    halves = load_folder(write_images(*(f"{name}/{i}.png" for name in names for i in range(2))), **transforms)
    assert halves.train.class_names == ("x", "y", "z")
    assert halves.test.queries.class_names == ("a", "b")
    assert [halves.test.queries.source.paths[p].parent.name for p in halves.test.queries.positions] == list("aabb")
    assert halves.notes == ("left out what is beside train and test: val",)


def test_a_class_may_be_called_train(write_images, transforms):
    root = write_images(*(f"{name}/{i}.png" for name in ("bus", "car", "test", "train") for i in range(2)))
    assert load_folder(root, **transforms).test.queries.class_names == ("test", "train")


def test_one_split_without_the_other(write_images, transforms):
    root = write_images(*(f"train/{name}/{i}.png" for name in "ab" for i in range(2)))
    with pytest.raises(UserError, match=r"class folders in 'train' but none in 'test': .* set data\.root to .*/train"):
        load_folder(root, **transforms)


def test_hidden_and_other_files_are_ignored_and_nested_ones_found(write_images, transforms):
    root = write_images(
        *("a/1.png", "a/deeper/2.png", "a/.hidden.png", "a/.cache/3.png", ".git/1.png", "b/1.png", "b/2.png"),
        *("c/1.png", "c/2.png", "loose.png"),
    )
    (root / "a" / "notes.txt").write_text("hello")
    (root / "empty").mkdir()
    halves = load_folder(root, **transforms)
    assert len(halves.train.source) == 6
    assert halves.train.labels.tolist() == [0, 0, 1, 1]
    assert halves.notes[0] == "left out 1 class folders without images: empty"


def test_missing_folder(tmp_path, transforms):
    with pytest.raises(UserError, match=r"no folder .*nowhere: set data\.root"):
        load_folder(tmp_path / "nowhere", **transforms)


@pytest.mark.parametrize("names", [(), ("loose.png",), (".hidden/1.png",)])
def test_folder_without_images_in_subfolders(write_images, transforms, names):
    root = write_images(*names)
    (root / "class").mkdir()
    with pytest.raises(UserError, match=rf"{root.name} has no subfolders with images \(.*\.jpg.*set data\.root"):
        load_folder(root, **transforms)


def test_one_class(write_images, transforms):
    root = write_images("images/a/1.png", "images/b/2.png")
    with pytest.raises(UserError, match="images of only one class, in the subfolder images"):
        load_folder(root, **transforms)


def test_training_class_with_one_image(write_images, transforms):
    root = write_images("a/1.png", "a/2.png", "b/1.png", "c/1.png", "c/2.png", "d/1.png", "d/2.png", "e/1.png")
    with pytest.raises(UserError, match=r"single image \(b\): .*data\.drop_small_classes=true"):
        load_folder(root, **transforms)
    halves = load_folder(root, **transforms, drop_small_classes=True)
    assert halves.train.class_names == ("a", "c")
    assert halves.test.queries.class_names == ("d", "e")


def test_broken_files_are_left_out_only_if_asked(write_images, write_broken, transforms):
    root = write_images(*(f"{name}/{i}.png" for name in "abcd" for i in range(2)))
    broken = write_broken("b/half.png")
    halves = load_folder(root, **transforms)
    with pytest.raises(UserError, match=r"half\.png"):
        halves.train.load(torch.arange(len(halves.train)))

    halves = load_folder(root, **transforms, skip_broken=True)
    assert len(halves.train.load(torch.arange(len(halves.train)))) == 4
    assert [halves.train.class_names[c] for c in halves.train.labels] == list("aabb")
    assert [halves.train.source.paths[p].parent.name for p in halves.train.positions] == list("aabb")
    assert halves.notes[0].startswith(f"left out 1 of 9 images that cannot be read: {broken} (")


def test_broken_files_are_left_out_of_given_splits(write_images, write_broken, transforms):
    names = ("test/a", "test/b", "train/x", "train/y")
    root = write_images(*(f"{name}/{i}.png" for name in names for i in range(2)))
    write_broken("test/a/half.png")
    halves = load_folder(root, **transforms, skip_broken=True)
    assert halves.train.positions.tolist() == [0, 1, 2, 3]
    assert halves.test.queries.positions.tolist() == [4, 5, 6, 7]


def test_nothing_but_broken_files(write_broken, transforms, tmp_path):
    for name in ("a/1.png", "b/1.png"):
        write_broken(name)
    with pytest.raises(UserError, match=r"has no images that can be read \(left out 2 of 2 images"):
        load_folder(tmp_path, **transforms, skip_broken=True)
