import errno

import pytest

from ccp_dml import cli
from ccp_dml.cli import main
from ccp_dml.commands import failures
from ccp_dml.commands.failures import WAY_ON, explain, wanted_memory, write_crash_report
from ccp_dml.errors import NonFiniteError, UserError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("data.root is no folder."), 2, ["data.root is no folder."]),
        (NonFiniteError("Step 3: the loss is not finite."), 1, ["Step 3"]),
        (OSError(errno.ENOSPC, "No space left on device"), 2, ["No space", "make room"]),
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), 2, ["Read-only file system: /x/y"]),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5000), 2, ["File name too long", "aaa..."]),
        (MemoryError(), 2, ["Out of memory", "run.evaluation_batch"]),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64000000000 bytes."),
            2,
            ["Out of memory (64.0 GB at once)", "train.classes_per_batch"],
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0"), 2, ["2.50 GiB at once"]),
        (
            RuntimeError("DataLoader worker (pid(s) 41) exited unexpectedly"),
            1,
            ["process that loads images was killed"],
        ),
    ],
)
def test_what_is_foreseen_is_one_sentence(error, code, words, monkeypatch):
    monkeypatch.setattr(failures, "write_crash_report", lambda _: pytest.fail("there is nothing to report"))
    sentence, found = explain(error)
    assert found == code
    assert "\n" not in sentence
    assert len(sentence) < 500
    assert all(word in sentence for word in words), sentence


def test_what_nobody_foresaw_is_a_sentence_a_report_and_a_way_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def breaks(**_):
        error = KeyError("of a mistake in the program")
        error.add_note(f"{WAY_ON}ccp train --resume --out run")
        error.add_note("Configuration: {'run': {'seed': 7}}")
        raise error

    monkeypatch.setattr(cli, "app", breaks)
    assert main(["train"]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "KeyError" in told
    assert "Continue with: ccp train --resume --out run" in told
    (report,) = (tmp_path / "ccp-dml" / "crashes").iterdir()
    assert str(report) in told
    text = report.read_text()
    assert "Traceback" in text
    assert "of a mistake in the program" in text
    assert "'seed': 7" in text
    assert "torch" in text


def test_a_report_goes_elsewhere_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert write_crash_report(ValueError("x")).parent == tmp_path / "temporary"


def test_a_report_that_can_be_written_nowhere_is_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(failures, "report_folders", lambda: [tmp_path / "file"])
    assert write_crash_report(ValueError("the cause")) == "the lines above"
    assert "the cause" in capsys.readouterr().err


def test_memory_that_nobody_counted_is_not_named():
    assert wanted_memory(MemoryError()) == ""
