import shutil

import pytest

from ccp_dml.config.schema import DataConfig
from ccp_dml.data.files.folder import load_folder
from ccp_dml.data.files.health import check_data, equal_files, shared_by_halves
from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import build_data


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


def test_a_training_class_of_one_image_is_a_problem_as_training_refuses_it(image_folder):
    for number in range(1, 5):
        (image_folder / "class_03" / f"{number}.png").unlink()
        (image_folder / "class_12" / f"{number}.png").unlink()  # it tests, as a wrong answer for others
    health = check_data(image_folder)
    (problem,) = health.problems
    assert problem.startswith("1 training classes have a single image")
    assert health.alone == [str(image_folder / "class_03" / "0.png")]


def test_few_classes_of_few_images_are_a_problem_as_training_refuses_them(image_folder):
    for number in range(6, 16):
        shutil.rmtree(image_folder / f"class_{number:02}")
    assert check_data(image_folder).problems == []
    for number in (3, 4):
        (image_folder / "class_01" / f"{number}.png").unlink()
        (image_folder / "class_05" / f"{number}.png").unlink()
    (problem,) = check_data(image_folder).problems
    assert problem.startswith("1 training classes have fewer than 4 images, which training refuses where fewer than 4")


@pytest.mark.parametrize(("name", "mark"), [("table.csv", ","), ("table.tsv", "\t")])
def test_a_table_is_looked_over_too(image_folder, tmp_path, name, mark):
    images = [path.relative_to(image_folder) for path in sorted(image_folder.rglob("*.png"))]
    lines = [f"{image}{mark}{image.parent}" for image in images]
    (tmp_path / name).write_text("\n".join([f"path{mark}label", *lines]))
    health = check_data(tmp_path / name, root=image_folder)
    assert (health.halves["train"].images, health.problems) == (40, [])
    (image_folder / "class_02" / "0.png").unlink()
    health = check_data(tmp_path / name, root=image_folder)
    assert health.problems == ["1 images cannot be read"]
    assert health.broken == {str(image_folder / "class_02" / "0.png"): "there is no such file"}
    with pytest.raises(UserError, match=r"--root .* is for the paths of a table"):
        check_data(image_folder, root=tmp_path)


def test_halves_are_those_of_a_training_with_the_same_share(image_folder):
    shutil.copy(image_folder / "class_00" / "1.png", image_folder / "class_11" / "copy.png")
    assert len(check_data(image_folder).leaked) == 1
    health = check_data(image_folder, test_share=0.25)
    assert (health.halves["train"].classes, health.halves["test"].classes) == (12, 4)
    assert health.leaked == []
    assert check_data(image_folder, test_share=0).halves["test"].images == 0


def test_another_column_may_say_what_tests(image_folder, tmp_path):
    table = tmp_path / "table.csv"
    rows = [
        f"{path},{path.parent.name},{'test' if path.stem in '34' else 'train'}" for path in image_folder.rglob("*.png")
    ]
    table.write_text("\n".join(["path,label,part", *rows]))
    health = check_data(table, split_column="part")
    assert (health.halves["train"].images, health.halves["test"].images) == (48, 32)
    with pytest.raises(UserError, match=r"^--split-column part is a column of a table"):
        check_data(image_folder, split_column="part")


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


CLASSES = tuple(f"{name}/{i}.png" for name in "abcd" for i in range(3))


def test_files_of_equal_size_and_other_content_are_not_equal(tmp_path):
    for name, content in (("a", b"12"), ("b", b"21"), ("c", b"12"), ("d", b"123")):
        (tmp_path / name).write_bytes(content)
    groups = equal_files([tmp_path / name for name in "abcd"] + [tmp_path / "missing"])
    assert [[path.name for path in group] for group in groups] == [["a", "c"]]


def copy_into_the_test_half(root):
    (root / "d" / "copy.png").write_bytes((root / "a" / "1.png").read_bytes())
    (root / "b" / "same half.png").write_bytes((root / "a" / "2.png").read_bytes())


def test_copies_across_the_halves_are_found_and_those_within_a_half_are_not(write_images, reading):
    root = write_images(*CLASSES)
    assert shared_by_halves(load_folder(root, reading)) == []
    copy_into_the_test_half(root)
    assert shared_by_halves(load_folder(root, reading)) == [(root / "a" / "1.png", root / "d" / "copy.png")]


def test_a_run_tells_of_copies_or_refuses_them(write_images):
    root = write_images(*CLASSES)
    copy_into_the_test_half(root)
    data = DataConfig(name="folder", root=str(root))
    assert any("1 test images are copies of training images" in note for note in build_data(data).notes)
    with pytest.raises(UserError, match=r"data\.duplicates=tell"):
        build_data(data.model_copy(update={"duplicates": "refuse"}))
