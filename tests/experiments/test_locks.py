"""Locks between processes."""

import threading

import pytest

from ccp_dml.errors import UserError
from ccp_dml.experiments.locks import lock


def test_a_lock_is_held_alone(tmp_path):
    with lock(tmp_path / "a.lock", "busy"), pytest.raises(UserError, match="busy"), lock(tmp_path / "a.lock", "busy"):
        pytest.fail("two hold it")
    with lock(tmp_path / "a.lock", "busy"):
        pass


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
