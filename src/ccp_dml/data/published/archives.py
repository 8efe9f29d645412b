"""Unpack archives that other people made: nothing may land outside the folder, and half an archive is an error."""

import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ccp_dml.errors import UserError

SCRATCH = ".unpacking-"
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, NotImplementedError)


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """Make a folder in `root`, on the same disk as what it becomes; what is not moved out of it vanishes at the end.

    What a killed process left behind goes first: it would take up the room for a second try.
    """
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(f"{SCRATCH}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=root, prefix=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar (plain or compressed) or zip file into `folder`, which should be a scratch folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        elif tarfile.is_tarfile(archive):
            _unpack_tar(archive, folder)
        else:
            raise UserError(f"{archive} is neither a tar nor a zip file, or it is cut off: get it again")
    except (*DAMAGE, KeyError, RecursionError) as error:  # links to nothing, a thousand folders deep
        raise UserError(f"{archive} is damaged or cut off ({error}): get it again") from None
    except OSError as error:
        raise UserError(f"{archive} cannot be unpacked into {folder.parent} ({error}): see to that first") from None


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            _refuse_outside(member.name, archive)
            if member.issym():
                _refuse_outside(posixpath.join(posixpath.dirname(member.name), member.linkname), archive, member.name)
            elif member.islnk():
                _refuse_outside(member.linkname, archive, member.name)
            elif not (member.isfile() or member.isdir()):
                raise UserError(f"{archive} is not safe: {member.name!r} is a device; use another copy")
            try:
                tar.extract(member, folder, filter="data")
            except tarfile.FilterError as error:  # what only shows on the disk: links through links
                raise UserError(f"{archive} is not safe: {error}; use another copy") from None


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            _refuse_outside(member.filename.replace("\\", "/"), archive)
            if stat.S_ISLNK(member.external_attr >> 16):
                raise UserError(f"{archive} is not safe: {member.filename!r} is a link; use another copy")
            if member.flag_bits & 1:
                raise UserError(f"{archive} is encrypted: unpack it with its password and give the folder with --from")
        for member in packed.infolist():
            packed.extract(member, folder)


def _refuse_outside(name: str, archive: Path, link: str | None = None) -> None:
    """Refuse an absolute path, or one that climbs above the folder."""
    inside = posixpath.normpath(name)
    if inside.startswith(("/", "../")) or inside == ".." or os.path.splitdrive(inside)[0]:
        what = f"{name!r}" if link is None else f"the link {link!r}"
        raise UserError(f"{archive} is not safe: {what} would leave the folder; use another copy")
