"""Bring a data set into a folder: from what a person has, or from where it is published."""

import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccp_dml.data.files.class_folders import places
from ccp_dml.data.published.archives import scratch_folder, unpack
from ccp_dml.data.published.downloads import RemoteFile, Report, TransferError, check, fetch
from ccp_dml.data.published.published_set import Published, refuse_incomplete, verify
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import is_of_the_system

WAY_ON = "; get what is missing, or go on without it: --allow-incomplete"


@dataclass(frozen=True)
class Steps:
    """Whom to tell what is going on, and whether to go on with what is incomplete."""

    note: Callable[[str], None]
    download: Report
    allow_incomplete: bool = False


def prepare(published: Published, root: Path, given: Path | None, steps: Steps) -> None:
    """Make `root` hold the complete data set. On an error, nothing but downloads is left there."""
    for path in filter(None, (given, root)):
        if is_of_the_system(path):
            raise UserError(f"{path} belongs to the operating system and holds no data: name another folder")
    if _is_complete(published, root, steps.allow_incomplete):
        return steps.note(f"{root} already holds {published.title}.")
    existed = root.is_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if given is None:
            _import_files(published, _fetch_all(published, root, steps), root, steps)
        elif given.is_dir():
            _import_folder(published, given.resolve(), root, steps)
        elif given.is_file():
            _import_archive(published, given, root, steps)
        else:
            raise UserError(f"--from {given} does not exist: give the archive or the folder that you have")
    except OSError as error:
        raise UserError(f"{published.title} could not be put into {root} ({error}): see to that first") from None
    finally:
        if not existed:
            with suppress(OSError):  # not empty: there is something worth keeping
                root.rmdir()
    return None


def _is_complete(published: Published, root: Path, allow_incomplete: bool) -> bool:
    try:
        return not verify(published, root).problems or allow_incomplete
    except UserError:
        return False


def _import_folder(published: Published, given: Path, root: Path, steps: Steps) -> None:
    """Link to a folder in a known layout; or unpack the published files that lie in it."""
    files = {file.name: found for file in published.files if (found := _find_file(file.name, given))}
    can_unpack = len(files) == len(published.files)
    try:
        verification = verify(published, given)
    except UserError:
        if not can_unpack:
            raise
    else:
        if not (verification.problems and can_unpack):
            if not steps.allow_incomplete:
                refuse_incomplete(verification, str(given), WAY_ON)
            return _link(verification.survey.base, root, steps)
    return _import_files(published, files, root, steps)


def _find_file(name: str, folder: Path) -> Path | None:
    """Find a file in `folder` or one below."""
    return next((place / name for place in places(folder) if (place / name).is_file()), None)


def _link(base: Path, root: Path, steps: Steps) -> None:
    target = _free(root / base.name)
    try:
        target.symlink_to(base, target_is_directory=True)
    except OSError:  # Windows without the privilege, or a disk that has no symbolic links
        with scratch_folder(root) as scratch:
            shutil.copytree(base, scratch / base.name, copy_function=_link_or_copy)
            os.rename(scratch / base.name, target)
    steps.note(f"{target} now leads to {base}, which must stay where it is.")


def _import_archive(published: Published, archive: Path, root: Path, steps: Steps) -> None:
    """Unpack an archive: the published one, which is checked, or anybody's own."""
    of_that_name = [file for file in published.files if file.name == archive.name]
    for file in of_that_name:
        check(file, archive)
    others = [file for file in published.files if file not in of_that_name]
    if of_that_name and others:  # one of several: the others may lie beside it
        files = {file.name: archive.parent / file.name for file in published.files}
        for file in others:
            if not files[file.name].is_file():
                raise UserError(f"{archive} is not all of {published.title}: put {file.name} beside it")
        return _import_files(published, files, root, steps)
    with scratch_folder(root) as scratch:
        steps.note(f"Unpacking {archive} ...")
        unpack(archive, scratch / published.folder)
        _take_over(published, scratch, root, str(archive), steps)
    return None


def _import_files(published: Published, files: dict[str, Path], root: Path, steps: Steps) -> None:
    """Put the published files together in the way that the data set's reader expects."""
    with scratch_folder(root) as scratch:
        for file in published.files:
            place = scratch / published.folder / file.place
            place.mkdir(parents=True, exist_ok=True)
            source = files[file.name]
            check(file, source)
            if file.is_archive:
                steps.note(f"Unpacking {source} ...")
                unpack(source, place)
            else:
                _link_or_copy(str(source), str(place / file.name))
        _take_over(published, scratch, root, " and ".join(str(path) for path in files.values()), steps)


def _take_over(published: Published, scratch: Path, root: Path, what: str, steps: Steps) -> None:
    """Move a data set out of the scratch folder, if it is complete."""
    try:
        verification = verify(published, scratch / published.folder)
    except UserError:
        raise UserError(f"{what} holds no {published.title}: expected {published.layout}") from None
    base = verification.survey.base
    inside = [problem.replace(str(base), "it") for problem in verification.problems]
    if inside and not steps.allow_incomplete:
        raise UserError(f"{what} is not {published.title} as published: {'; '.join(inside)}{WAY_ON}")
    target = _free(root / base.name)
    os.rename(base, target)
    steps.note(f"{target} holds {published.title}.")


def _free(target: Path) -> Path:
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} is in the way, and not complete: move or remove it, then run this again")
    return target


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)


def _fetch_all(published: Published, root: Path, steps: Steps) -> dict[str, Path]:
    """Bring every published file into `root`, unless a person has put it there."""
    files = {}
    for file in published.files:
        there = _find_file(file.name, root)
        if there is None and published.behind_a_form:
            raise UserError(
                f"{published.title} cannot be fetched automatically: {_instructions(published, file, root)}"
            )
        try:
            files[file.name] = there or fetch(file, root, steps.download)
        except TransferError as error:
            raise UserError(
                f"{file.name} could not be fetched ({error}): {_instructions(published, file, root)}"
            ) from None
    return files


def _instructions(published: Published, wanted: RemoteFile, root: Path) -> str:
    names = [file.name for file in published.files] if published.behind_a_form else [wanted.name]
    again = f"ccp data prepare {published.name} --root {shlex.quote(str(root))}"
    return (
        f"get {' and '.join(names)} with a browser (see {published.page}), put {'it' if len(names) == 1 else 'them'} "
        f"into {root} and run `{again}` again; or, if you have the images elsewhere, run `{again} --from FOLDER`"
    )
