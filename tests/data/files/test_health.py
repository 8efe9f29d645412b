import shutil

import pytest

from ccp_dml.data.files.health import check_data
from ccp_dml.errors import UserError


def test_a_good_folder_has_no_problems(image_folder):
    health = check_data(image_folder)
    assert health.problems == []
    assert health.halves["train"].classes == health.halves["test"].classes == 8
    assert health.halves["train"].images == 40
    assert health.sides == (36, 36, 36)


def test_what_spoils_results_is_found(image_folder):
    (image_folder / "class_01" / "0.png").write_bytes(b"no image")
    shutil.copy(image_folder / "class_00" / "1.png", image_folder / "class_15" / "copy.png")
    shutil.copy(image_folder / "class_02" / "1.png", image_folder / "class_02" / "twice.png")
    for number in (0, 1):
        (image_folder / "class_05" / f"{number}.png").unlink()
    health = check_data(image_folder)
    assert health.problems == [
        "1 images cannot be read",
        "1 test images are copies of training images",
        "1 groups of equal files have different classes",
    ]
    assert len(health.copies) == 2
    assert health.small_classes == ["train/class_05"]
    assert next(iter(health.broken)).endswith("class_01/0.png")


def test_a_table_is_looked_over_too(image_folder, tmp_path):
    lines = [f"{path},{path.parent.name}" for path in sorted(image_folder.rglob("*.png"))]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *lines]))
    assert check_data(tmp_path / "table.csv").halves["train"].images == 40


def test_anything_else_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("")
    for name in ("x.txt", "none"):
        with pytest.raises(UserError, match="neither a folder"):
            check_data(tmp_path / name)


def test_pictures_that_are_not_read_are_told(image_folder):
    (image_folder / "class_03" / "photo.heic").write_bytes(b"x")
    assert (
        "left out 1 files of formats that are not read (.heic 1): convert them to JPEG"
        in check_data(image_folder).notes
    )
    for image in image_folder.rglob("*.png"):
        image.rename(image.with_suffix(".avif"))
    with pytest.raises(UserError, match=r"; there are 81 files of formats that are not read \(.avif 80, .heic 1\)"):
        check_data(image_folder)
