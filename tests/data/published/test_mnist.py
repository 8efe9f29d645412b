import gzip

import numpy as np
import pytest
import torch

from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.mnist import MNIST, load_mnist, survey_mnist
from ccp_dml.errors import UserError


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder, *, packed=True, train=20, test=10):
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % 10
        images = np.zeros((count, 28, 28)) + labels[:, None, None]
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            contents = idx(array)
            file = folder / f"{split}-{name}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(contents) if packed else contents)
    return folder


def test_published_numbers():
    assert MNIST.sizes == {"train": SplitSize(10, 60_000), "test": SplitSize(10, 10_000)}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["", "raw", "MNIST/raw", "MNIST"])
def test_layouts(tmp_path, packed, folder):
    write_mnist(tmp_path / folder, packed=packed)
    halves = load_mnist(tmp_path)
    assert (len(halves.train), len(halves.test.queries)) == (20, 10)
    assert halves.train.class_names == halves.test.queries.class_names == tuple("0123456789")
    assert halves.test.gallery is None
    inputs = halves.train.load(torch.tensor([13, 2]), torch.tensor([3, 4]))
    assert inputs.shape == (2, 3, 28, 28)
    assert inputs.dtype == torch.uint8
    assert inputs[:, :, 0, 0].tolist() == [[3] * 3, [2] * 3]
    assert halves.train.source.in_memory
    assert halves.train.source.picture(13).size == (28, 28)
    assert halves.notes[0] == "not MNIST as published: train has 20 images of 10 classes instead of 60,000 of 10"
    assert halves.incomplete == halves.notes  # so that tables say it, too


def test_survey_counts_what_is_there(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw", test=7)
    survey = survey_mnist(tmp_path)
    assert survey.base == tmp_path / "MNIST"
    assert survey.sizes == {"train": SplitSize(10, 20), "test": SplitSize(7, 7)}


def test_one_file_missing(tmp_path):
    (write_mnist(tmp_path) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"holds no MNIST \(found: t10k-images.*\): expected the four idx files"):
        load_mnist(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_file_that_is_cut_off(tmp_path, packed):
    write_mnist(tmp_path, packed=packed)
    file = next(tmp_path.glob("train-images*"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.* is damaged or cut off"):
        load_mnist(tmp_path)


def test_other_contents(tmp_path):
    write_mnist(tmp_path, packed=False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"<html>not found</html>")
    with pytest.raises(UserError, match="no idx file of the right kind"):
        load_mnist(tmp_path)


def test_images_and_labels_of_different_files(tmp_path):
    write_mnist(tmp_path, packed=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(19)))
    with pytest.raises(UserError, match=r"do not fit together \(20 images, 19 labels"):
        load_mnist(tmp_path)
