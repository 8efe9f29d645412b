"""What a process that was killed leaves in a run's folder, and what of it stands in the way of the next one."""

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

SCRATCH = ".*.part"
SCRATCH_OF_THE_FIRST_PAGE = (".config.toml.*.part", ".environment.json.*.part")


def sweep(folder: Path, also: Sequence[str] = ()) -> None:
    """Remove half-written files of a run, and a folder's content that was written before its run began.

    A folder that holds anything else is not ours and stays as it is. Files named in `also` are ours, too.
    """
    if (folder / "config.toml").exists():
        if _is_environment(folder / "environment.json"):
            for scratch in folder.rglob(SCRATCH):
                scratch.unlink(missing_ok=True)
        return
    found = list(folder.iterdir()) if folder.is_dir() else []
    if all(file.name in also or _is_of_the_first_page(file) for file in found):
        for file in found:
            file.unlink(missing_ok=True)


def _is_of_the_first_page(file: Path) -> bool:
    if file.name == "environment.json":
        return _is_environment(file)
    return any(fnmatch(file.name, pattern) for pattern in SCRATCH_OF_THE_FIRST_PAGE)


def _is_environment(file: Path) -> bool:
    """Whether a run of ours wrote this environment.json: others use that name, too."""
    try:
        return "ccp-dml" in json.loads(file.read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, TypeError, KeyError):
        return False
