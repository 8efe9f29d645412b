"""Locks between processes."""

import subprocess
import sys
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


def test_who_waits_says_so_once_and_then_holds_the_lock(tmp_path):
    file, told = tmp_path / "a.lock", threading.Event()

    def holder():
        with lock(file, "busy"):
            held.set()
            told.wait(30)

    held = threading.Event()
    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(30)
    calls = []

    def on_waiting():
        calls.append("waiting")
        told.set()

    with lock(file, "busy", 30.0, on_waiting):
        thread.join()
    assert calls == ["waiting"]


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from ccp_dml.foundation.locks import lock\n"
        f"with lock(Path({str(tmp_path / 'a.lock')!r}), 'busy'):\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="busy"), lock(tmp_path / "a.lock", "busy"):
        pytest.fail("two hold it")
    process.kill()
    process.wait()
    with lock(tmp_path / "a.lock", "busy"):
        pass


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / ".run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"), alone_in(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()
