"""Fetch published files: from the first source that answers, on from where a transfer broke off, checked at the end."""

import hashlib
import http
import http.client
import io
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ccp_dml.errors import UserError

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5
"""How often a source that breaks off is asked again for the rest."""

ARCHIVES = (".tgz", ".tar.gz", ".tar", ".zip")

Report = Callable[[str, int, int | None], None]
"""Told the file's name, the bytes that are there, and how many there will be, if known."""


@dataclass(frozen=True)
class RemoteFile:
    """A file as its authors publish it. Without `urls` a person must get it; without `md5` it cannot be checked.

    `place` is the folder of the data set that it, or what it unpacks to, belongs in.
    """

    name: str
    urls: tuple[str, ...] = ()
    md5: str | None = None
    size: int | None = None
    place: str = "."

    @property
    def is_archive(self) -> bool:
        return self.name.endswith(ARCHIVES)


class TransferError(Exception):
    """A source did not deliver, and why."""


def fetch(file: RemoteFile, folder: Path, report: Report) -> Path:
    """Fetch `folder/NAME`, complete and checked. What was fetched before an interruption is kept in `NAME.part`.

    Raises TransferError with all reasons if no source delivers; UserError if the disk does not take it, or if something
    else is there under the name.
    """
    target = folder / file.name
    if target.exists():
        check(file, target)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in file.urls:
        try:
            _fetch_from(url, file, target, report)
        except TransferError as error:
            failures.append(f"{url}: {error}")
        else:
            return target
    raise TransferError("; ".join(failures))


def check(file: RemoteFile, path: Path) -> None:
    """Refuse a file that is not the published one."""
    if reason := mismatch(file, path):
        raise UserError(
            f"{path} is not the published {file.name}: {reason}; remove it and get it again (or unpack it yourself and "
            "give the folder with --from, if it is a version of your own)"
        )


def mismatch(file: RemoteFile, path: Path) -> str | None:
    """Say what is wrong with the file at `path`; None if it is the published one."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"it has {size:,} bytes instead of {file.size:,}"
    if file.md5 is not None and (found := md5_of(path)) != file.md5:
        return f"its md5 is {found} instead of {file.md5}"
    return None


def md5_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch_from(url: str, file: RemoteFile, target: Path, report: Report) -> None:
    part = target.with_name(target.name + ".part")
    fresh = not part.exists()
    while True:
        _transfer(url, part, file, report)
        reason = mismatch(file, part)
        if reason is None:
            os.replace(part, target)
            return
        part.unlink()
        if fresh:
            raise TransferError(f"what came is not {file.name}: {reason}")
        fresh = True  # the first bytes were of an earlier try, perhaps of another file: once more from the start


def _transfer(url: str, part: Path, file: RemoteFile, report: Report) -> None:
    """Add to `part` until it is complete. A source that breaks off is asked again as long as it gets on."""
    for attempt in range(1, ATTEMPTS + 1):
        begin = _length(part)
        try:
            _continue(url, part, file, report)
        except urllib.error.HTTPError as error:
            raise TransferError(f"HTTP {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise TransferError(str(error.reason)) from None
        except (TransferError, http.client.HTTPException, OSError) as error:
            if attempt == ATTEMPTS or _length(part) <= begin:
                raise TransferError(str(error) or type(error).__name__) from None
        else:
            return


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _continue(url: str, part: Path, file: RemoteFile, report: Report) -> None:
    """Request what is missing, once. A source that cannot continue sends everything, and `part` starts anew."""
    begin = _length(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ccp-dml"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # everything is there already, or too much
            return
        raise
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:  # of FTP, the status is None
            begin = 0
        length = response.headers.get("Content-Length")
        total = begin + int(length) if length and length.isdigit() else file.size
        _append(response, part, begin, total, file, report)
    if total is not None and _length(part) < total:
        raise TransferError(f"the transfer broke off after {_length(part):,} of {total:,} bytes")


def _append(
    response: http.client.HTTPResponse, part: Path, begin: int, total: int | None, file: RemoteFile, report: Report
) -> None:
    try:
        stream = part.open("r+b" if begin else "wb", buffering=0)  # unbuffered: what cannot be written says so at once
    except OSError as error:
        raise _cannot_write(part, error) from None
    with stream:
        stream.seek(begin)
        report(file.name, begin, total)
        while chunk := response.read1(CHUNK):
            try:
                begin += _write(stream, chunk)
            except OSError as error:
                raise _cannot_write(part, error) from None
            report(file.name, begin, total)


def _write(stream: io.FileIO, chunk: bytes) -> int:
    rest = memoryview(chunk)
    while rest:
        rest = rest[stream.write(rest) :]
    return len(chunk)


def _cannot_write(part: Path, error: OSError) -> UserError:
    return UserError(f"{part} cannot be written ({error.strerror}): make room there, or give --root another folder")
