import errno
import sqlite3
from contextlib import closing

import pytest

from ccp_dml import cli
from ccp_dml.cli import main
from ccp_dml.commands import failures
from ccp_dml.commands.failures import WAY_ON, explain, setting_of, value_of, write_crash_report
from ccp_dml.errors import NonFiniteError, UserError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("data.root is no folder."), 2, ["data.root is no folder."]),
        (UserError(f"optim.lr = {'9' * 5000!r}: not a number."), 2, ["optim.lr = '999", "9... not a number."]),
        (NonFiniteError("Step 3: the loss is not finite."), 1, ["Step 3"]),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 2, ["No space left on device: /x/y; make room"]),
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), 2, ["Read-only file system: /x/y"]),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5000), 2, ["File name too long", "aaa..."]),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x/y"), 2, ["No such file or directory: /x/y"]),
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
        (
            UnicodeEncodeError("utf-8", 'root = "/x/br\udce4"\nseed = 0', 13, 14, "surrogates not allowed"),
            2,
            [r"'/x/br\udce4' holds bytes", "rename it"],
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


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_disk_that_is_too_small_for_a_database_is_one_sentence(wrapped, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "write_crash_report", lambda _: pytest.fail("there is nothing to report"))
    with closing(sqlite3.connect(tmp_path / "items.sqlite")) as table:
        table.execute("PRAGMA max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as full:
            table.executescript("CREATE TABLE a (x); CREATE TABLE b (x); CREATE TABLE c (x)")
    error = full.value
    if wrapped:  # as Optuna's library does
        error = RuntimeError("a long story")
        error.__cause__ = full.value
    assert explain(error) == (
        "A database could not be written (database or disk is full); make room and run the command again.",
        2,
    )
    assert failures.disk_error_of_database(sqlite3.OperationalError("no such table: items")) is None


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


def test_a_report_holds_no_password(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["ccp", "study", "search", "--storage", "postgresql://ann:s3cret@host/db"])
    text = write_crash_report(ValueError("no answer from postgresql://ann:s3cret@host/db")).read_text()
    assert "s3cret" not in text
    assert text.count("postgresql://ann:***@host/db") >= 2


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


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--data.root", "photos"], "--set data.root=photos"),
        (["--root", "photos"], "--set data.root=photos"),
        (["--lr=0.1"], "--set optim.lr=0.1"),
        (["--steps", "100"], "--set train.max_steps=100"),
        (["--optim.lrr", "1"], "--set optim.lr=1"),
        (["--epochs", "5"], "--set train.max_steps=STEPS"),
        (["--batch-size", "64"], "--set train.classes_per_batch=CLASSES"),
    ],
)
def test_a_setting_that_is_typed_as_an_option_is_told_how_to_write_it(options, remedy, capsys):
    assert main(["train", "glyphs", "c2", *options]) == 2
    told = capsys.readouterr().err
    assert f"settings are written {remedy} " in told
    assert "Possible options" not in told


@pytest.mark.usefixtures("wide")
def test_an_option_that_is_no_setting_keeps_the_suggestion_of_one_that_looks_alike(capsys):
    assert main(["benchmark", "mlrc", "--data", "glyphs", "--methods", "c2", "--repeat", "2"]) == 2
    assert "Possible options: --repeats" in capsys.readouterr().err


@pytest.mark.usefixtures("wide")
def test_commands_without_settings_speak_of_none(capsys):
    assert main(["cache", "--root", "x"]) == 2
    assert "--set" not in capsys.readouterr().err


@pytest.mark.usefixtures("wide")
def test_a_list_with_spaces_is_told_how_to_write_it(capsys):
    assert main(["benchmark", "mlrc", "--data", "glyphs", "--methods", "c2,", "c2-ccp"]) == 2
    assert "with commas and no spaces, as in c2,c2-ccp" in capsys.readouterr().err


@pytest.mark.usefixtures("wide")
def test_a_word_in_place_of_a_number_is_said_in_plain_words(capsys):
    assert main(["train", "glyphs", "c2", "--seed", "one"]) == 2
    assert "'--seed': it must be a whole number" in capsys.readouterr().err
    assert main(["list", "loss"]) == 2
    assert "Value error" not in capsys.readouterr().err


def test_settings_are_found_by_name_in_any_section_or_nearly_by_their_whole_name():
    assert setting_of("crop") == "data.crop"
    assert setting_of("train.max_stepps") == "train.max_steps"
    assert setting_of("verbose") is None


def test_a_value_is_what_stands_behind_the_option():
    assert value_of("--lr", ["glyphs", "--lr", "1"]) == "1"
    assert value_of("--lr", ["--lr", "--resume"]) == "VALUE"
    assert value_of("--lr", ["--lr=2", "c2"]) == "2"


def test_a_file_that_was_installed_and_is_gone_is_no_mistake_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lost = FileNotFoundError(errno.ENOENT, "No such file or directory", failures.__file__ + "/template.html")
    for error in (lost, OSError(errno.EINVAL, "Invalid argument")):
        sentence, code = explain(error)
        assert code == 1
        assert "broken installation" in sentence
