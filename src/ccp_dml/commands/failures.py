"""Turn whatever ends a command into one sentence and an exit code; what nobody foresaw also into a crash report.

A command line that cannot be read is explained, too: which setting an unknown option stands for, in plain words.

Exit codes: 2 a mistake that the user can mend, 1 anything else. A crash report holds versions, command, configuration
and the stack trace, so that the sentence can stay short and nothing is lost.
"""

import errno
import os
import re
import sqlite3
import sys
import tempfile
import traceback
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ccp_dml.errors import NonFiniteError, UserError, first_line, is_text, without_password
from ccp_dml.foundation.machine import LESS_MEMORY, out_of_memory

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
OF_THE_DISK = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG, errno.ELOOP, errno.ESTALE}
OF_THE_DISK_BELOW = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
OF_A_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EBUSY, errno.EINVAL, errno.ENXIO}

WAY_ON = "Continue with: "
"""Begins a note that a command adds to an exception: the command line that goes on where this one stopped."""

ENDLESS_WORD = re.compile(r"\S{500,}")
NAME = re.compile(r"[^\n\"]+")
LOADER_KILLED = re.compile(r"DataLoader worker \(pid.*?\) (exited unexpectedly|is killed by signal)")

PLAIN_WORDS = (
    (re.compile(r"Input should be a valid integer.*", re.DOTALL), "it must be a whole number"),
    (re.compile(r"Input should be a valid number.*", re.DOTALL), "it must be a number"),
    (re.compile(r"^Value error, "), ""),
)
"""What a parser says, and what a person would."""

OFTEN_CALLED = {
    "steps": "train.max_steps",
    "learning_rate": "optim.lr",
    "gpu": "run.device",
    "model": "model.backbone",
    "data": "data.root",
    "dim": "model.embedding_dim",
}
"""Names of settings in other programs, and ours."""

OF_OTHER_UNITS = {
    "epochs": "train.max_steps=STEPS",
    "batch_size": "train.classes_per_batch=CLASSES",
}
"""The same where the number that was typed would mean another thing."""


def explain(error: Exception) -> tuple[str, int]:
    """Say in one sentence why a command ended, and with which exit code."""
    if isinstance(error, UserError):
        return readable(str(error)), 2
    if isinstance(error, NonFiniteError):
        return readable(str(error)), 1
    if (told := out_of_memory(error)) is not None:
        return f"{told}: {LESS_MEMORY}.", 2
    if LOADER_KILLED.search(str(error)):
        return "A process that loads images was killed, perhaps for want of memory; fewer run.workers need less.", 1
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"{quoted(error)}; make room and run the command again.", 2
    if (of_database := disk_error_of_database(error)) is not None:
        return f"A database could not be written ({of_database}); make room and run the command again.", 2
    if isinstance(error, OSError) and (
        error.errno in OF_THE_DISK or (error.errno in OF_A_PATH and names_path_of_user(error))
    ):
        return f"{quoted(error)}; check the path and its rights.", 2
    if isinstance(error, UnicodeEncodeError) and not is_text(error.object):
        return f"{with_stray_bytes(error)} holds bytes that are not text in UTF-8; rename it, or type it anew.", 2
    report = write_crash_report(error)
    return (
        f"{type(error).__name__}: {first_line(error)}. This is a mistake in ccp-dml, or a broken installation; "
        f"the details are in {report}."
    ), 1


def disk_error_of_database(error: BaseException) -> str | None:
    """Find what SQLite said of the disk: an index writes by it, and a search of settings by libraries above it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF in OF_THE_DISK_BELOW:
            return str(cause)
        cause = cause.__cause__
    return None


def readable(sentence: str) -> str:
    """Cut words of a sentence that nobody could read: what was typed may have had thousands of digits."""
    return ENDLESS_WORD.sub(lambda found: f"{found[0][:200]}...", sentence)


def ways_on(error: BaseException) -> list[str]:
    """List the command lines that go on where this command stopped."""
    return [note for note in getattr(error, "__notes__", []) if note.startswith(WAY_ON)]


def names_path_of_user(error: OSError) -> bool:
    """Tell whether an error names a path, and not that of a file which was installed with ccp-dml."""
    name = error.filename
    return isinstance(name, str | bytes) and Path(__file__).parents[1] not in Path(os.fsdecode(name)).parents


def quoted(error: OSError) -> str:
    """Quote what the system says, and of which file; a very long name is cut."""
    name = str(error.filename or "")
    shown = name if len(name) <= 200 else f"{name[:200]}..."
    return f"{error.strerror}: {shown}" if name else f"{error.strerror}"


def with_stray_bytes(error: UnicodeEncodeError) -> str:
    """Quote the name in a text, between quotes or on a line of its own, whose bytes cannot be written."""
    found = next(one for one in NAME.finditer(error.object) if error.start < one.end())
    return ascii(found[0][-200:])


def write_crash_report(error: BaseException) -> Path | str:
    """Write what is needed to understand the failure into a file, and name it."""
    text = "\n".join(
        [
            f"ccp-dml crash report, {datetime.now().astimezone().isoformat(timespec='seconds')}",
            f"command: {' '.join(sys.argv)}",
            *versions(),
            "",
            "".join(traceback.format_exception(error)),  # the configuration is among the notes of the exception
        ]
    )
    text = without_password(text)
    name = f"crash-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    for folder in report_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return folder / name
    sys.stderr.write(text)  # nowhere to write to: better a trace than nothing
    return "the lines above"


def report_folders() -> list[Path]:
    """List where a crash report may go: the user's cache, or else the folder for temporary files."""
    try:
        from ccp_dml.foundation.files import cache_home

        return [cache_home() / "crashes", Path(tempfile.gettempdir())]
    except (ImportError, RuntimeError):  # half an installation, or no home
        return [Path(tempfile.gettempdir())]


def versions() -> list[str]:
    """List the versions of what is installed; an installation may be too broken to tell."""
    try:
        from ccp_dml.foundation.environment import environment

        return [f"{key}: {value}" for key, value in environment(sys.argv).items()]
    except Exception as error:  # the report must be written all the same
        return [f"python: {sys.version}", f"versions are unknown ({type(error).__name__}: {error})"]


def explain_usage(error: Any, typed: list[str], takes_settings: bool) -> None:
    """Add to an error about the command line what was probably meant.

    Args:
        error: of the library that reads command lines; its `message` is what a user sees.
        typed: the words behind the command's name.
        takes_settings: whether the command has `--set`.
    """
    message = getattr(error, "message", None)
    if not isinstance(message, str):
        return
    for pattern, plain in PLAIN_WORDS:
        message = pattern.sub(plain, message)
    option = getattr(error, "option_name", None)
    if takes_settings and isinstance(option, str) and option.startswith("--"):
        name = option.removeprefix("--").replace("-", "_")
        key = setting_of(name)
        setting = OF_OTHER_UNITS.get(name) or (None if key is None else f"{key}={value_of(option, typed)}")
        if setting is not None:
            message += f"; settings are written --set {setting}"
            error.possibilities = None  # options that merely look alike
    if "unexpected extra argument" in message and any(word.endswith(",") for word in typed):
        message += "; lists are written with commas and no spaces, as in c2,c2-ccp"
    error.message = message


def setting_of(name: str) -> str | None:
    """Name the setting that an option of this name would set, or None."""
    from ccp_dml.config.layers import keys_called, known_keys

    if name in OFTEN_CALLED:
        return OFTEN_CALLED[name]
    if called := keys_called(name):
        return called[0]
    near = get_close_matches(name, known_keys(), n=1, cutoff=0.8) if "." in name else []
    return near[0] if near else None


def value_of(option: str, typed: list[str]) -> str:
    """Find the value that was typed behind an option: after =, or as the next word."""
    for place, word in enumerate(typed):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and place + 1 < len(typed) and not typed[place + 1].startswith("-"):
            return typed[place + 1]
    return "VALUE"
