"""What every gallery shares: queries that can be searched with, exact neighbours, and one model only."""

import os

import numpy as np
import pytest

from ccp_dml.errors import UserError
from ccp_dml.serving.search.gallery import check_queries, exact_nearest, is_gone, refuse_other_model
from ccp_dml.serving.search.index_store import PinnedModel


def test_neighbours_are_sorted_by_distance_and_equals_by_row():
    references = np.array([[3, 0], [1, 0], [0, 1], [0, 3]], np.float32)
    distances, rows = exact_nearest(np.zeros((1, 2), np.float32), references, 3)
    assert rows.tolist() == [[1, 2, 0]]
    assert distances.tolist() == [[1, 1, 3]]
    assert exact_nearest(np.zeros((2, 2), np.float32), references, 9)[1].shape == (2, 4)
    assert exact_nearest(np.zeros((2, 2), np.float32), references[:0], 9)[1].shape == (2, 0)


def test_queries_become_float32_of_the_right_width():
    assert check_queries(np.zeros((2, 3)), 3, 1).dtype == np.float32
    for queries, k, message in (
        (np.zeros((2, 4)), 1, "a vector of 3 numbers"),
        (np.zeros(3), 1, "a vector of 3 numbers"),
        (np.full((1, 3), np.inf), 1, "NaN or infinite"),
        (np.zeros((1, 3)), 0, "asks for nothing"),
    ):
        with pytest.raises(UserError, match=message):
            check_queries(queries, 3, k)


def test_another_model_is_refused_by_name_and_digest():
    pinned = PinnedModel(path="runs/birds", name="birds", digest="a" * 32, dim=3)
    refuse_other_model(pinned, "a" * 32, "elsewhere", "birds.index")
    with pytest.raises(UserError, match=r"model birds \(aaaaaaaa\), not of owls \(bbbbbbbb\); .*it was at runs/birds"):
        refuse_other_model(pinned, "b" * 32, "owls", "birds.index")


def test_a_file_that_may_not_be_looked_at_is_not_gone(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert not is_gone(str(tmp_path / "file"))
    assert is_gone(str(tmp_path / "other"))
    assert is_gone(str(tmp_path / "file" / "below"))
    monkeypatch.setattr(os, "stat", forbidden)
    assert not is_gone(str(tmp_path / "file"))


def forbidden(path, **_):
    raise PermissionError(13, "Permission denied", str(path))
