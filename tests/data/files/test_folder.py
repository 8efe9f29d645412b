from dataclasses import replace

import pytest
import torch

from ccp_dml.data.files.folder import load_folder
from ccp_dml.errors import UserError


def test_first_half_of_the_classes_trains(write_images, reading):
    root = write_images("002.B/1.png", "002.B/2.jpg", "001.A/1.png", "001.A/2.PNG", "003.C/1.png", "003.C/2.png")
    halves = load_folder(root, reading)
    assert halves.train.class_names == ("001.A", "002.B")
    assert halves.test.queries.class_names == ("003.C",)
    assert halves.train.labels.tolist() == [0, 0, 1, 1]
    assert [halves.train.source.name(p) for p in halves.train.positions] == [
        str(root / name) for name in ("001.A/1.png", "001.A/2.PNG", "002.B/1.png", "002.B/2.jpg")
    ]
    inputs = halves.test.queries.load(torch.tensor([1, 0]))
    assert inputs[:, 0, 0, 0].tolist() == [45, 36]


def test_classes_with_integer_names_are_ordered_by_number(write_images, reading):
    root = write_images(*(f"{name}/{i}.png" for name in (1, 2, 10, 11) for i in range(2)))
    assert load_folder(root, reading).train.class_names == ("1", "2")


def test_train_and_test_folders_are_the_split(write_images, reading):
    names = ("test/a", "test/b", "train/x", "train/y", "train/z", "val/q")
    halves = load_folder(write_images(*(f"{name}/{i}.png" for name in names for i in range(2))), reading)
    assert halves.train.class_names == ("x", "y", "z")
    assert halves.test.queries.class_names == ("a", "b")
    assert [halves.test.queries.source.paths[p].parent.name for p in halves.test.queries.positions] == list("aabb")
    assert halves.notes == ("left out what is beside train and test: val",)


def test_a_class_may_be_called_train(write_images, reading):
    root = write_images(*(f"{name}/{i}.png" for name in ("bus", "car", "test", "train") for i in range(2)))
    assert load_folder(root, reading).test.queries.class_names == ("test", "train")


def test_one_split_without_the_other(write_images, reading):
    root = write_images(*(f"train/{name}/{i}.png" for name in "ab" for i in range(2)))
    with pytest.raises(UserError, match=r"class folders in 'train' but none in 'test': .* set `root` to .*/train"):
        load_folder(root, reading)


@pytest.mark.parametrize("parts", [("train", "val"), ("Train", "Test"), ("training", "validation", "testing")])
def test_parts_under_other_names_are_no_classes(write_images, reading, parts):
    root = write_images(*(f"{part}/{name}/{i}.png" for part in parts for name in "ab" for i in range(2)))
    with pytest.raises(UserError, match=r"but none in ('train', )?'test': add or rename") as refusal:
        load_folder(root, reading)
    assert all(f"'{part}'" in str(refusal.value) for part in parts)
    assert f"set `root` to {root / parts[0]} to use" in str(refusal.value)


def test_a_folder_without_classes_tells_of_its_loose_images(write_images, reading):
    root = write_images("1.png", "2.png")
    with pytest.raises(UserError, match=r"; 2 images lie in it directly: sort them into such subfolders"):
        load_folder(root, reading)


def test_images_beside_the_classes_and_lost_classes_are_told(write_images, reading):
    root = write_images(*(f"{name}/{i}.png" for name in "abc" for i in range(2)), "loose.png")
    (root / "d").symlink_to(root / "gone", target_is_directory=True)
    notes = load_folder(root, reading).notes
    assert f"left out 1 images that lie in no class folder: {root}/loose.png" in notes
    assert f"left out 1 links that lead nowhere: {root}/d" in notes


def test_hidden_and_other_files_are_ignored_and_nested_ones_found(write_images, reading):
    root = write_images(
        *("a/1.png", "a/deeper/2.png", "a/.hidden.png", "a/.cache/3.png", ".git/1.png", "b/1.png", "b/2.png"),
        *("c/1.png", "c/2.png", "loose.png"),
    )
    (root / "a" / "notes.txt").write_text("hello")
    (root / "empty").mkdir()
    halves = load_folder(root, reading)
    assert len(halves.train.source) == 6
    assert halves.train.labels.tolist() == [0, 0, 1, 1]
    assert halves.notes[0] == "left out 1 class folders without images of their own: empty"


def test_missing_folder(tmp_path, reading):
    with pytest.raises(UserError, match=r"no folder .*nowhere: set `root`"):
        load_folder(tmp_path / "nowhere", reading)


def test_a_file_in_place_of_the_folder(write_images, reading):
    table = write_images("a/1.png") / "photos.csv"
    table.touch()
    with pytest.raises(UserError, match=r"photos\.csv is a file, not a folder: .*; a table is read by `csv`"):
        load_folder(table, reading)


@pytest.mark.parametrize("names", [(), ("loose.png",), (".hidden/1.png",)])
def test_folder_without_images_in_subfolders(write_images, reading, names):
    root = write_images(*names)
    (root / "class").mkdir()
    with pytest.raises(UserError, match=rf"{root.name} has no subfolders with images \(.*\.jpg.*set `root`"):
        load_folder(root, reading)


def test_one_class(write_images, reading):
    root = write_images("images/a/1.png", "images/b/2.png")
    with pytest.raises(UserError, match="images of only one class, in the subfolder images") as refusal:
        load_folder(root, reading)
    assert f"set `root`={root / 'images'}, which holds 2 subfolders, if these are the classes" in str(refusal.value)


@pytest.mark.parametrize("names", [["a/1.png", "a/2.png"], ["train/a/1.png", "test/a/2.png"]])
def test_one_class_that_holds_no_others(write_images, reading, names):
    with pytest.raises(UserError, match="set `root` to the folder that holds one subfolder per class, or add classes"):
        load_folder(write_images(*names), reading)


def test_training_class_with_one_image(write_images, reading):
    root = write_images("a/1.png", "a/2.png", "b/1.png", "c/1.png", "c/2.png", "d/1.png", "d/2.png", "e/1.png")
    with pytest.raises(UserError, match=r"single image \(b\): .*`drop_small_classes`=true"):
        load_folder(root, reading)
    halves = load_folder(root, replace(reading, drop_small_classes=True))
    assert halves.train.class_names == ("a", "c")
    assert halves.test.queries.class_names == ("d", "e")


def test_broken_files_are_left_out_only_if_asked(write_images, write_broken, reading):
    root = write_images(*(f"{name}/{i}.png" for name in "abcd" for i in range(2)))
    broken = write_broken("b/half.png")
    halves = load_folder(root, reading)
    with pytest.raises(UserError, match=r"half\.png"):
        halves.train.load(torch.arange(len(halves.train)))

    halves = load_folder(root, replace(reading, skip_broken=True))
    assert len(halves.train.load(torch.arange(len(halves.train)))) == 4
    assert [halves.train.class_names[c] for c in halves.train.labels] == list("aabb")
    assert [halves.train.source.paths[p].parent.name for p in halves.train.positions] == list("aabb")
    assert halves.notes[0].startswith(f"left out 1 of 9 images that cannot be read: {broken} (")


def test_broken_files_are_left_out_of_given_splits(write_images, write_broken, reading):
    names = ("test/a", "test/b", "train/x", "train/y")
    root = write_images(*(f"{name}/{i}.png" for name in names for i in range(2)))
    write_broken("test/a/half.png")
    halves = load_folder(root, replace(reading, skip_broken=True))
    assert halves.train.positions.tolist() == [0, 1, 2, 3]
    assert halves.test.queries.positions.tolist() == [4, 5, 6, 7]


def test_nothing_but_broken_files(write_broken, reading, tmp_path):
    for name in ("a/1.png", "b/1.png"):
        write_broken(name)
    with pytest.raises(UserError, match=r"has no images that can be read \(left out 2 of 2 images"):
        load_folder(tmp_path, replace(reading, skip_broken=True))


CLASSES = tuple(f"{name}/{i}.png" for name in "abcd" for i in range(3))


def names_of(halves):
    return [
        str(part.source.paths[p].relative_to(part.source.paths[p].parents[1]))
        for part in (halves.train, halves.test.queries)
        for p in part.positions
    ]


@pytest.mark.parametrize(
    ("link", "target"),
    [("a/loop", "."), ("a/up", ".."), ("a/other", "../b"), ("a/deep/up", "../.."), ("a/root", "/")],
)
def test_linked_folders_that_lead_back_are_left_out_with_a_note(write_images, reading, link, target):
    root = write_images(*CLASSES)
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(target, target_is_directory=True)
    halves = load_folder(root, reading)
    assert names_of(halves) == list(CLASSES)
    assert any("1 linked folders that lead back" in note and link in note for note in halves.notes)


def test_a_linked_folder_elsewhere_is_followed_once(write_images, reading, tmp_path_factory):
    root, elsewhere = write_images(*CLASSES), tmp_path_factory.mktemp("disk")
    (elsewhere / "3.png").write_bytes((root / "a/0.png").read_bytes())
    (elsewhere / "again").symlink_to(elsewhere, target_is_directory=True)
    (root / "a" / "more").symlink_to(elsewhere, target_is_directory=True)
    halves = load_folder(root, reading)
    assert sum(p.parent.name == "more" for p in halves.train.source.paths) == 1
    assert any("more/again" in note for note in halves.notes)


def test_one_real_file_counts_once_whatever_its_names(write_images, reading):
    root = write_images(*CLASSES)
    (root / "c" / "9.png").symlink_to(root / "a" / "0.png")
    (root / "c" / "8.png").hardlink_to(root / "c" / "0.png")
    halves = load_folder(root, reading)
    assert names_of(halves) == list(CLASSES)
    assert any("2 further names of files that count already" in note for note in halves.notes)


def test_a_class_that_is_a_link_and_names_that_look_alike_are_told(write_images, reading):
    root = write_images(*CLASSES, "Caf\u00e9/0.png", "Caf\u00e9/1.png", "Cafe\u0301/0.png", "Cafe\u0301/1.png")
    (root / "e").symlink_to(root / "d", target_is_directory=True)
    notes = load_folder(root, reading).notes
    assert any("class e is a link to class d" in note for note in notes)
    assert any("differ only in case or Unicode form" in note for note in notes)


def test_an_empty_name_is_not_the_current_folder(write_images, reading, monkeypatch):
    monkeypatch.chdir(write_images(*CLASSES))
    with pytest.raises(UserError, match="no folder is named"):
        load_folder("", reading)
