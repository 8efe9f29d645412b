import pytest

from ccp_dml.config.schema import DataConfig
from ccp_dml.data.files.duplicates import equal_files, shared_by_halves
from ccp_dml.data.files.folder import load_folder
from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import build_data

CLASSES = tuple(f"{name}/{i}.png" for name in "abcd" for i in range(3))


def test_files_of_equal_size_and_other_content_are_not_equal(tmp_path):
    for name, content in (("a", b"12"), ("b", b"21"), ("c", b"12"), ("d", b"123")):
        (tmp_path / name).write_bytes(content)
    groups = equal_files([tmp_path / name for name in "abcd"] + [tmp_path / "missing"])
    assert [[path.name for path in group] for group in groups] == [["a", "c"]]


def copy_into_the_test_half(root):
    (root / "d" / "copy.png").write_bytes((root / "a" / "1.png").read_bytes())
    (root / "b" / "same half.png").write_bytes((root / "a" / "2.png").read_bytes())


def test_copies_across_the_halves_are_found_and_those_within_a_half_are_not(write_images, transforms):
    root = write_images(*CLASSES)
    assert shared_by_halves(load_folder(root, **transforms)) == []
    copy_into_the_test_half(root)
    assert shared_by_halves(load_folder(root, **transforms)) == [(root / "a" / "1.png", root / "d" / "copy.png")]


def test_a_run_tells_of_copies_or_refuses_them(write_images):
    root = write_images(*CLASSES)
    copy_into_the_test_half(root)
    data = DataConfig(name="folder", root=str(root))
    assert any("1 test images are copies of training images" in note for note in build_data(data).notes)
    with pytest.raises(UserError, match=r"data\.duplicates=tell"):
        build_data(data.model_copy(update={"duplicates": "refuse"}))
