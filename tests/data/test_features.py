import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ccp_dml.data.features import load_features
from ccp_dml.errors import UserError

FEATURES = np.arange(24, dtype=np.float32).reshape(8, 3)
LABELS = np.array([10, 10, 9, 9, 11, 11, 12, 12])


def saved(tmp_path: Path, **arrays: np.ndarray) -> Path:
    path = tmp_path / "vectors.npz"
    np.savez(path, **({"features": FEATURES, "labels": LABELS} | arrays))
    return path


def refusal(tmp_path: Path, **arrays: np.ndarray) -> str:
    path = saved(tmp_path, **arrays)
    with pytest.raises(UserError) as raised:
        load_features(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_first_half_of_the_sorted_classes_trains_by_default(tmp_path):
    halves = load_features(saved(tmp_path))
    assert halves.train.class_names == ("9", "10")
    assert halves.test.queries.class_names == ("11", "12")
    assert halves.test.gallery is None
    assert halves.train.labels.tolist() == [1, 1, 0, 0]
    assert torch.equal(halves.train.load(torch.tensor([2, 0])), torch.from_numpy(FEATURES[[2, 0]]))
    assert torch.equal(halves.test.queries.load(torch.arange(4), torch.arange(4)), torch.from_numpy(FEATURES[4:]))
    assert halves.notes == ()


def test_fewer_classes_may_test(tmp_path):
    assert load_features(saved(tmp_path), test_share=0.25).test.queries.class_names == ("12",)
    split = np.array(["train"] * 4 + ["test"] * 4)
    with pytest.raises(UserError, match=r"says itself which rows test, so that `test_share`=0\.25 has no effect"):
        load_features(saved(tmp_path, split=split), test_share=0.25)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8"])
def test_features_become_float32(tmp_path, dtype):
    halves = load_features(saved(tmp_path, features=FEATURES.astype(dtype)))
    assert halves.train.load(torch.arange(4)).dtype == torch.float32
    assert torch.equal(halves.train.source.load(torch.arange(8), None), torch.from_numpy(FEATURES))


@pytest.mark.parametrize("kind", ["U", "S"])
def test_string_labels_and_given_split(tmp_path, kind):
    labels = np.array(["b", "a", "b", "a", "x", "x", "y", "y"]).astype(kind)
    split = np.array(["test"] * 4 + ["train"] * 4).astype(kind)
    halves = load_features(saved(tmp_path, labels=labels, split=split))
    assert halves.train.class_names == ("x", "y")
    assert halves.train.positions.tolist() == [4, 5, 6, 7]
    assert halves.test.queries.class_names == ("a", "b")
    assert halves.test.queries.labels.tolist() == [1, 0, 1, 0]
    assert halves.train.source.name(4) == "row 4"


def test_huge_integer_labels_keep_their_value(tmp_path):
    halves = load_features(saved(tmp_path, labels=LABELS.astype(np.uint64) + np.uint64(2**63)))
    assert halves.train.class_names == (str(2**63 + 9), str(2**63 + 10))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"no features file .*nowhere\.npz: set `path`"):
        load_features(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"these are no arrays", b"PK\x03\x04 half a zip"])
def test_file_of_another_kind(tmp_path, content):
    path = tmp_path / "vectors.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"vectors\.npz is not an \.npz file"):
        load_features(path)


def test_single_array_file(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, FEATURES)
    with pytest.raises(UserError, match=r"holds a single array: write an \.npz"):
        load_features(path)


def test_damaged_file(tmp_path):
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(FEATURES.tobytes(), FEATURES[::-1].tobytes()))
    with pytest.raises(UserError, match=r"array 'features' of .* cannot be read"):
        load_features(path)


@pytest.mark.parametrize("missing", ["features", "labels"])
def test_missing_array(tmp_path, missing):
    path = tmp_path / "vectors.npz"
    np.savez(path, **{name: FEATURES for name in ("features", "labels", "other") if name != missing})
    with pytest.raises(UserError, match=f"no array '{missing}' .found: .*other"):
        load_features(path)


def test_lengths_that_differ(tmp_path):
    assert "8 rows of features but 5 labels" in refusal(tmp_path, labels=LABELS[:5])
    assert "8 rows of features but 3 entries of split" in refusal(tmp_path, split=np.array(["train"] * 3))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_in_float32_name_the_row(tmp_path, value):
    features = FEATURES.astype(np.float64)
    features[6, 1] = value
    features[7, 0] = value
    assert "in 2 row(s), first in row 6" in refusal(tmp_path, features=features)


@pytest.mark.parametrize("shape", [(8,), (8, 3, 1), (0, 3), (8, 0)])
def test_features_of_wrong_shape(tmp_path, shape):
    assert f"have shape {shape}" in refusal(tmp_path, features=np.zeros(shape, np.float32))


def test_labels_and_split_of_wrong_rank(tmp_path):
    assert "labels of" in (message := refusal(tmp_path, labels=LABELS[:, None]))
    assert "have shape (8, 1)" in message
    assert "split of" in (message := refusal(tmp_path, split=np.array([["train"]] * 8)))
    assert "have shape (8, 1)" in message


def test_wrong_types(tmp_path):
    assert "of type int64: save them as float32" in refusal(tmp_path, features=FEATURES.astype(np.int64))
    assert "of type float64: they must be integers or strings" in refusal(tmp_path, labels=LABELS.astype(float))


@pytest.mark.parametrize("name", ["features", "labels", "split"])
def test_python_objects_are_never_unpickled(tmp_path, name):
    message = refusal(tmp_path, **{name: np.array([{}] * 8, dtype=object)})
    assert f"array '{name}'" in message
    assert "not one of plain numbers or strings" in message


def test_unknown_split_value_names_the_row(tmp_path):
    split = np.array(["train"] * 4 + ["test", "val", "test", "test"])
    assert "is 'val' in row 5: it must be 'train' or 'test'" in refusal(tmp_path, split=split)


def test_bytes_that_are_no_text(tmp_path):
    features = np.zeros((4, 2), np.float32)
    np.savez(tmp_path / "f.npz", features=features, labels=np.array([b"\xff", b"\xff", b"b", b"b"]))
    with pytest.raises(UserError, match=r"labels of .*f\.npz are not valid UTF-8.*save them as strings"):
        load_features(tmp_path / "f.npz")


def test_members_that_are_no_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "f.npz", "w") as archive:
        archive.writestr("features", "1 2 3")
        archive.writestr("labels", "a b c")
    with pytest.raises(UserError, match=r"'features' of .*f\.npz is not an array: write the file with numpy\.savez"):
        load_features(tmp_path / "f.npz")


@pytest.mark.parametrize("method", [1, 99])
def test_a_compression_that_nobody_knows_is_told(tmp_path, method):
    np.savez(tmp_path / "f.npz", features=np.ones((4, 2), np.float32), labels=np.arange(4))
    content = bytearray((tmp_path / "f.npz").read_bytes())
    for start, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # in both headers of each member
        place = content.find(start)
        while place >= 0:
            content[place + offset] = method
            place = content.find(start, place + 1)
    (tmp_path / "f.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be read|is not an \.npz"):
        load_features(tmp_path / "f.npz")
