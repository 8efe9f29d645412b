"""The plain text lists that data sets come with: a row per line, columns between blanks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError


def read_rows(path: Path, *columns: Callable[[str], Any], header: int = 0) -> list[tuple[Any, ...]]:
    """The rows of a list, each cell parsed by its column's function; the first `header` lines are left out.

    The last column takes the rest of its line, blanks included.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from the data set's archive") from None
    rows = []
    for number, line in enumerate(lines[header:], start=header + 1):
        if not line.strip():
            continue
        try:
            cells = line.strip().split(maxsplit=len(columns) - 1)
            rows.append(tuple(parse(cell) for parse, cell in zip(columns, cells, strict=True)))
        except ValueError:
            raise UserError(
                f"{path} has {line!r} in line {number}, not the {len(columns)} columns that belong there: "
                "restore it from the data set's archive"
            ) from None
    if not rows:
        raise UserError(f"{path} lists nothing: restore it from the data set's archive")
    return rows
