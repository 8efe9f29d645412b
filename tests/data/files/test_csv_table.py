from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ccp_dml.data.files.csv_table import delimiter_of, load_csv
from ccp_dml.errors import UserError

IMAGES = tuple(f"images/{i}.png" for i in range(8))
LABELS = (10, 10, 9, 9, 11, 11, 12, 12)
ROWS = tuple(f"{path},{label}" for path, label in zip(IMAGES, LABELS, strict=True))


def table(folder: Path, *lines: str) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def root(write_images) -> Path:
    return write_images(*IMAGES)


@pytest.fixture
def refusal(root, reading):
    """The error of a table with these lines."""

    def message(*lines: str) -> str:
        path = table(root, *lines)
        with pytest.raises(UserError) as raised:
            load_csv(path, reading)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    return message


def test_first_half_of_the_classes_by_number_trains(root, reading):
    halves = load_csv(table(root, "path,label", *ROWS), reading)
    assert halves.train.class_names == ("9", "10")
    assert halves.test.queries.class_names == ("11", "12")
    assert halves.train.labels.tolist() == [1, 1, 0, 0]
    assert halves.train.load(torch.arange(4))[:, 0, 0, 0].tolist() == [0, 9, 18, 27]
    assert halves.notes == ()


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_columns_as_spreadsheets_of_other_countries_separate_them(root, reading, mark, begin):
    lines = [line.replace(",", mark) for line in (f"{begin}path,label", *ROWS)]
    halves = load_csv(table(root, *lines), reading)
    assert halves.train.class_names == ("9", "10")
    assert halves.train.labels.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("header", "mark"),
    [("path,label;x", ","), ("label;path", ";"), ('"path"\tlabel', "\t"), ("path", ","), ("a;b", ",")],
)
def test_the_mark_beside_the_column_path_separates(header, mark):
    assert delimiter_of(header + "\n") == mark


def test_labels_of_any_text_other_columns_and_a_given_split(root, reading):
    lines = [
        f'{label},note,"{split}",{path}'
        for path, label, split in zip(
            IMAGES, ["é", "é", '"b, c"', '"b, c"', "x", "x", "10", "10"], ["test"] * 4 + ["train"] * 4, strict=True
        )
    ]
    path = table(root, "label,comment,split,path", *lines[:3], "", *lines[3:])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))  # as spreadsheets write it
    halves = load_csv(path, reading)
    assert halves.train.class_names == ("10", "x")
    assert halves.train.positions.tolist() == [4, 5, 6, 7]
    assert halves.test.queries.class_names == ("b, c", "é")


def test_paths_start_at_root_if_given(root, reading):
    lines = [row.removeprefix("images/") for row in ROWS]
    path = table(root, "path,label", *lines)
    assert len(load_csv(path, reading, root=root / "images").train) == 4
    absolute = table(root, "path,label", *(f"{root}/{row}" for row in ROWS))
    assert len(load_csv(absolute, reading, root="/nowhere").train) == 4


def test_missing_table(tmp_path, reading):
    with pytest.raises(UserError, match=r"no file .*nowhere\.csv: set `path`"):
        load_csv(tmp_path / "nowhere.csv", reading)


def test_missing_column(refusal):
    message = refusal("path,class", *ROWS)
    assert "no column 'label' in row 1 (found: path, class)" in message
    assert "no column 'path' in row 1" in refusal("file,label", *ROWS)
    assert "no column 'path' in row 1 (found: nothing)" in refusal("")


def test_table_without_rows(refusal):
    assert "no rows below its header" in refusal("path,label")


def test_empty_cell(refusal):
    assert "empty cell in row 3, column 'label'" in refusal("path,label", ROWS[0], "images/1.png, ", *ROWS[2:])
    assert "empty cell in row 2, column 'path'" in refusal("path,label", ",9", *ROWS[2:])
    assert "empty cell in row 2, column 'label'" in refusal("path,label", "images/1.png", *ROWS[2:])
    assert "empty cell in row 2, column 'split'" in refusal("path,label,split", "images/1.png,9")


def test_too_many_cells(refusal):
    assert "3 cells in row 4 but 2 columns" in refusal("path,label", *ROWS[:2], "images/2.png,a,b", *ROWS[3:])


def test_unknown_split(refusal):
    lines = [f"{row},train" for row in ROWS[:4]] + [f"{row},valid" for row in ROWS[4:]]
    assert "'valid' in row 6, column 'split': it must be 'train' or 'test'" in refusal("path,label,split", *lines)


def test_missing_file_names_row_column_and_remedy(refusal, root):
    message = refusal("path,label", *ROWS[:2], "images/gone.png,9", *ROWS[3:6], "images/lost.png,9")
    assert "in row 4, column 'path', that does not exist" in message
    assert str(root / "images/gone.png") in message
    assert "(2 of 7 are missing)" in message
    assert "`root`" in message


def test_paths_of_windows_are_told_apart(refusal):
    rows = [row.replace("/", "\\") for row in ROWS]
    assert "write / in place of \\ in its paths, set" in refusal("path,label", *rows)
    assert "\\" not in refusal("path,label", *ROWS, "gone/1.png,9")


def test_a_folder_in_place_of_the_table(root, reading):
    with pytest.raises(UserError, match=r"is a folder, not a file: .*; one subfolder per class is read by `folder`"):
        load_csv(root, reading)


def test_missing_and_broken_files_are_left_out_if_asked(root, reading, write_broken):
    write_broken("images/half.png")
    path = table(root, "path,label", *ROWS[:2], "images/gone.png,9", *ROWS[2:], "images/half.png,12")
    halves = load_csv(path, replace(reading, skip_broken=True))
    assert halves.train.labels.tolist() == [1, 1, 0, 0]
    assert [halves.train.source.paths[p].stem for p in halves.train.positions] == ["0", "1", "2", "3"]
    assert halves.notes[0].startswith("left out 2 of 10 images that cannot be read")
    assert "gone.png (there is no such file)" in halves.notes[0]


def test_repeated_images_are_left_out_and_reported(root, reading):
    path = table(root, "path,label", *ROWS, "images/../images/0.png,10", ROWS[7])
    halves = load_csv(path, reading)
    assert len(halves.train) == len(halves.test.queries) == 4
    assert halves.notes == ("left out 2 rows that repeat an image: rows 10, 11",)


def test_image_with_two_labels_or_splits(refusal):
    message = refusal("path,label", *ROWS, "images/3.png,12")
    assert "images/3.png in rows 5 and 10 with different values in column 'label'" in message
    lines = [f"{row},train" for row in ROWS]
    assert "in column 'split'" in refusal("path,label,split", *lines, f"{ROWS[0]},test")


def test_training_class_with_one_image(refusal):
    assert "single image (8, 10): " in refusal("path,label", *ROWS[1:], "images/0.png,8")


def test_file_that_is_no_text(root, reading):
    path = root / "table.csv"
    path.write_bytes("path,label\nimages/0.png,é\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"table\.csv is not text in UTF-8"):
        load_csv(path, reading)


def test_unfinished_quote(refusal):
    assert "not a proper CSV file in row" in refusal("path,label", *ROWS, '"images/0.png,9')


@pytest.mark.parametrize("name", ["path", "label", "split"])
def test_a_column_that_stands_there_twice(refusal, name):
    header = ["path", "label", "split", name]
    assert f"2 columns '{name}' in row 1" in refusal(",".join(header), "images/0.png,1,train,x")


def test_another_column_may_divide_the_images(root, reading):
    lines = [f"{row},{'test' if number < 4 else 'train'}" for number, row in enumerate(ROWS)]
    path = table(root, "path,label,shelf", *lines)
    halves = load_csv(path, reading, split_column="shelf")
    assert halves.train.class_names == ("11", "12")
    with pytest.raises(UserError, match=r"has no column 'part' in row 1 .*set `split_column`"):
        load_csv(path, reading, split_column="part")


def test_another_share_of_the_classes_may_test(root, reading):
    halves = load_csv(table(root, "path,label", *ROWS), reading, test_share=0.25)
    assert (halves.train.class_names, halves.test.queries.class_names) == (("9", "10", "11"), ("12",))
