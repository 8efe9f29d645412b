"""Locks between processes."""

import threading
from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import alone_in, lock


def test_a_lock_is_held_alone(tmp_path):
    with lock(tmp_path / "a.lock", "busy"), pytest.raises(UserError, match="busy"), lock(tmp_path / "a.lock", "busy"):
        pytest.fail("two hold it")
    with lock(tmp_path / "a.lock", "busy"):
        pass


def test_a_run_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with alone_in(Path()), pytest.raises(UserError, match="trained by another process"), alone_in(tmp_path / "here"):
        pytest.fail("two hold it")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"), alone_in(tmp_path / "file" / "run"):
        pytest.fail("locked")


def test_who_waited_for_a_removed_lock_does_not_hold_it_beside_its_successor(tmp_path):
    """The first holder removes the file; the second waits for it, and a third comes after the removal."""
    file = tmp_path / "a.lock"
    entered, leave = threading.Event(), threading.Event()

    def second():
        with lock(file, "busy", 30.0):
            entered.set()
            leave.wait(30)

    with lock(file, "busy"):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.5)  # it has opened the file by now
        file.unlink()
    assert entered.wait(30)
    try:
        with pytest.raises(UserError, match="busy"), lock(file, "busy"):
            pytest.fail("two hold it")
    finally:
        leave.set()
        thread.join()
