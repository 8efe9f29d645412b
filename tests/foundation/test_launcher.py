"""Processes started together: they find each other, and their failures become one exit code."""

import sys

import pytest

from ccp_dml.foundation import launcher

MODULE = """
import os, sys
from pathlib import Path
from ccp_dml.foundation.process_group import join, leave, times_restarted
processes = join()
Path(sys.argv[1], f"{processes.rank}-of-{processes.count}-{times_restarted()}").touch()
processes.wait()
if processes.rank == 1 and times_restarted() == 0:
    leave()
    sys.exit(int(sys.argv[2]))
processes.wait()
leave()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "small_training.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    (tmp_path / "seen").mkdir()
    return "small_training"


@pytest.mark.slow
def test_processes_find_each_other_are_restarted_and_fail_with_one_exit_code(module, tmp_path, capfd):
    folder = tmp_path / "seen"
    assert launcher.run_together(module, [str(folder), "2"], processes=2, max_restarts=1) == 0
    seen = sorted(file.name for file in folder.iterdir())
    assert seen == ["0-of-2-0", "0-of-2-1", "1-of-2-0", "1-of-2-1"]
    assert launcher.run_together(module, [str(folder), "2"], processes=2) == 2
    assert "exitcode" not in capfd.readouterr().err, "what fails says so itself; the launcher adds nothing"
