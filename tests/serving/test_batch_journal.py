"""Batches of vectors on the disk: whatever a kill left half written is cut off, and nothing else."""

import numpy as np
import pytest

from ccp_dml.serving.batch_journal import BatchJournal

REQUEST = {"model": "d"}


def batch(number):
    return np.full((2, 3), number, np.float32)


@pytest.fixture
def folder(tmp_path):
    """Three batches of two vectors."""
    journal = BatchJournal(tmp_path / "part", 3)
    assert journal.begin(REQUEST) == []
    for number in range(3):
        journal.append(batch(number), name=f"batch {number}")
    return tmp_path / "part"


def begun(folder, request=REQUEST):
    journal = BatchJournal(folder, 3)
    names = [note["name"] for note in journal.begin(request)]
    return journal, names


def test_what_was_appended_is_there_again(folder):
    journal, names = begun(folder)
    assert names == ["batch 0", "batch 1", "batch 2"]
    np.testing.assert_array_equal(journal.vectors(), np.concatenate([batch(0), batch(1), batch(2)]))


def test_it_is_gone_on_with_behind_the_last_batch(folder):
    journal, _ = begun(folder)
    journal.append(batch(7), name="later")
    again, names = begun(folder)
    assert names[-1] == "later"
    np.testing.assert_array_equal(again.vectors()[-2:], batch(7))


@pytest.mark.parametrize(
    ("name", "tail"),
    [("vectors.f32", b"\1" * 5), ("batches.jsonl", b'{"rows": 2, "na'), ("batches.jsonl", b'{"rows": "x"}\n')],
)
def test_a_half_written_end_is_cut_off(folder, name, tail):
    with (folder / name).open("ab") as file:
        file.write(tail)
    journal, names = begun(folder)
    assert len(names) == 3
    journal.append(batch(7), name="later")
    again, names = begun(folder)
    assert names == ["batch 0", "batch 1", "batch 2", "later"]
    np.testing.assert_array_equal(again.vectors()[-2:], batch(7))


def test_what_is_no_longer_wanted_is_cut_off_with_all_behind_it(folder):
    journal = BatchJournal(folder, 3)
    notes = journal.begin(REQUEST, lambda number, note: note["name"] == f"batch {number}" and number != 1)
    assert [note["name"] for note in notes] == ["batch 0"]
    np.testing.assert_array_equal(journal.vectors(), batch(0))
    assert begun(folder)[1] == ["batch 0"]


def test_a_batch_whose_vectors_are_lost_does_not_count(folder):
    with (folder / "vectors.f32").open("ab") as file:
        file.truncate(2 * 2 * 3 * 4 + 1)
    journal, names = begun(folder)
    assert names == ["batch 0", "batch 1"]
    assert journal.vectors().shape == (4, 3)


def test_another_request_begins_anew(folder):
    journal, names = begun(folder, {"model": "e"})
    assert names == []
    assert journal.vectors().shape == (0, 3)
    assert begun(folder)[1] == []


def test_it_can_be_removed(folder):
    BatchJournal(folder, 3).remove()
    assert not folder.exists()
