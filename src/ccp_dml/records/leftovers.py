"""Remove what a killed process has left in a run's folder, and nothing that is not its own."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from ccp_dml.foundation.files import from_json
from ccp_dml.records import layout

SCRATCH = ".*.part"
SCRATCH_OF_NEW_RUN = (
    *(f".{name}.*.part" for name in (layout.CONFIG, layout.ENVIRONMENT, layout.OWN_CODE)),
    layout.OWN_CODE,
)


def sweep(folder: Path, also: Sequence[str] = ()) -> None:
    """Remove the half-written files of a run, or everything in a folder whose run was killed before it began.

    A folder that holds anything else is not ours and stays as it is. Files named in `also` count as ours.
    """
    if (folder / layout.CONFIG).exists():
        if _is_environment(folder / layout.ENVIRONMENT):
            for scratch in folder.rglob(SCRATCH):
                scratch.unlink(missing_ok=True)
        return
    found = list(folder.iterdir()) if folder.is_dir() else []
    if all(file.name in also or _is_of_new_run(file) for file in found):
        for file in found:
            file.unlink(missing_ok=True)


def _is_of_new_run(file: Path) -> bool:
    """Tell whether `Logbook.begin` wrote this file before it could write the configuration."""
    if file.name == layout.ENVIRONMENT:
        return _is_environment(file)
    return any(fnmatch(file.name, pattern) for pattern in SCRATCH_OF_NEW_RUN)


def _is_environment(file: Path) -> bool:
    """Tell whether a run of ours wrote this environment.json: other programs use that name, too."""
    try:
        return "ccp-dml" in from_json(file.read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, TypeError, KeyError):
        return False
