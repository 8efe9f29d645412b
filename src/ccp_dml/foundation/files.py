"""Write files that are either whole or not there, and know where they may go."""

import csv
import errno
import io
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a scratch path beside `path` that takes its place if the block ends well, and vanishes if it does not.

    Only regular files are replaced: a device or pipe, /dev/null say, is there for others, too.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "This is no regular file, and is not replaced", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        with scratch.open("rb") as file:
            os.fsync(file.fileno())  # or a power cut could leave an empty file under the final name
        os.chmod(scratch, 0o666 & ~current_umask())  # mkstemp made it private
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def file_in_the_way(path: Path) -> Path | None:
    """Find the file that stands where a folder above `path` would have to be."""
    return next((parent for parent in path.parents if parent.is_file()), None)


PSEUDO = ("/proc", "/sys", "/dev")
IN_MEMORY = "/dev/shm"  # a disk in memory, where people put data that they read often


def is_of_the_system(path: Path) -> bool:
    """Tell whether a path is in a file system that a kernel makes up: reading there may never end."""
    whole = Path(os.path.realpath(path))  # `resolve` would raise for links that go round in a circle
    return any(map(whole.is_relative_to, PSEUDO)) and not whole.is_relative_to(IN_MEMORY)


def cache_home() -> Path:
    """Name the folder where this user's machine keeps what can be computed again."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ccp-dml"


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    with atomic(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def as_utf8(text: str) -> str:
    """Write bytes that are not text in UTF-8, which names of files may hold, as escapes such as \\udcff."""
    return text.encode(errors="backslashreplace").decode()


def write_json(path: Path, value: Any) -> None:
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    """Write a value as the text of a JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def from_json(text: str | bytes) -> Any:
    """Parse JSON; text that is nested too deeply is a ValueError, too, as any other wrong text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def from_toml(text: str) -> dict[str, Any]:
    """Parse TOML; text that is nested too deeply is a ValueError, too, as any other wrong text."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def as_csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Write rows as CSV text; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Give a scratch folder beside `folder` that becomes it when the block ends well, and vanishes when it does not.

    Raises FileExistsError where there is something already, unless it is an empty folder.
    """
    folder = folder.expanduser().absolute()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, "there is something already", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        yield scratch
        os.chmod(scratch, 0o777 & ~current_umask())  # mkdtemp made it private
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
