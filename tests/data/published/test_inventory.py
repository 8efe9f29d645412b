"""Lists of images: what is there, what is missing, and the halves that they make."""

from dataclasses import replace

import pytest

from ccp_dml.data.published.inventory import (
    Inventory,
    ListedImage,
    SplitSize,
    describe_missing,
    divide_by_entries,
    read_rows,
)
from ccp_dml.errors import UserError

CLASSES = {3: "three", 7: "seven", 9: "nine"}


@pytest.fixture
def inventory(write_images):
    """Listed as (class, split), files 0.png, 1.png, ... in this order."""

    def make(*listed):
        names = [f"{index}.png" for index in range(len(listed))]
        base = write_images(*names)
        entries = [ListedImage(base / name, *one) for name, one in zip(names, listed, strict=True)]
        return Inventory(base, tuple(entries), CLASSES)

    return make


def test_sizes_are_of_what_is_there(inventory):
    found = inventory((3, "train"), (3, "train"), (7, "train"), (9, "test"))
    found.entries[2].path.unlink()
    assert found.missing == [found.base / "2.png"]
    assert found.sizes() == {"train": SplitSize(1, 2), "test": SplitSize(1, 1)}
    assert describe_missing(found.missing, 4, found.base) == f"1 of 4 images are missing in {found.base}: 2.png"


def test_labels_count_the_classes_of_their_half_in_official_order(inventory, reading):
    halves = divide_by_entries(inventory((7, "train"), (9, "test"), (3, "train"), (7, "train")), reading)
    assert halves.train.class_names == ("three", "seven")
    assert halves.train.labels.tolist() == [1, 0, 1]
    assert halves.train.positions.tolist() == [0, 2, 3]
    assert halves.test.queries.class_names == ("nine",)
    assert halves.test.queries.labels.tolist() == [0]
    assert halves.test.gallery is None


def test_queries_and_gallery_share_a_numbering(inventory, reading):
    listed = ((3, "train"), (9, "query"), (7, "gallery"), (9, "gallery"))
    test = divide_by_entries(inventory(*listed), reading).test
    assert test.queries.class_names == test.gallery.class_names == ("seven", "nine")
    assert (test.queries.labels.tolist(), test.gallery.labels.tolist()) == ([1], [0, 1])


def test_missing_and_broken_images_are_refused_or_left_out_with_a_note(inventory, reading):
    found = inventory((3, "train"), (3, "train"), (7, "train"), (9, "test"))
    found.entries[0].path.unlink()
    with pytest.raises(UserError, match=r"1 of 4 images are missing .*`skip_broken`=true"):
        divide_by_entries(found, reading)
    found.entries[2].path.write_bytes(b"no image")
    halves = divide_by_entries(found, replace(reading, skip_broken=True), notes=["first"])
    assert halves.train.class_names == ("three",)
    assert len(halves.train) == 1
    assert halves.notes[0] == "first"
    assert "2" in halves.notes[1]


def test_small_classes_leave_the_training_half_alone(inventory, reading):
    found = inventory((3, "train"), (7, "train"), (7, "train"), (9, "test"))
    halves = divide_by_entries(found, replace(reading, drop_small_classes=True))
    assert halves.train.class_names == ("seven",)
    assert len(halves.test.queries) == 1, "a test class of one image stays, as published"
    assert halves.notes == ("left out 1 training classes with a single image: three",)


def test_a_half_without_images_is_refused(inventory, reading):
    with pytest.raises(UserError, match="holds no test images"):
        divide_by_entries(inventory((3, "train")), reading)


def test_rows_are_parsed_column_by_column(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text("header\n\n1 some name\n 2 other \n", encoding="utf-8-sig")
    assert read_rows(file, int, str, header=1) == [(1, "some name"), (2, "other")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a\nx b\n", "'x b' in line 2, not the 2 columns"),
        ("1 a\n2\n", "'2' in line 2"),
        ("\n", "lists nothing"),
        (None, "cannot be read"),
    ],
)
def test_a_list_that_is_none_is_named_with_its_line(tmp_path, text, message):
    file = tmp_path / "list.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_rows(file, int, str)
    assert str(file) in str(caught.value)
    assert "restore it" in str(caught.value)
