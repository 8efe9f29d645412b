"""A CSV table of images: columns path, label and perhaps split."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from ccp_dml.data.files.images import ImageReading, readable
from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.splits import SPLITS, divide
from ccp_dml.errors import UserError, listing

TABLES = (".csv", ".tsv")  # how names of tables end


@dataclass(frozen=True)
class Row:
    number: int  # of the line in the file, where the header is row 1
    path: Path
    label: str
    split: str | None


def load_csv(
    path: str | Path,
    reading: ImageReading,
    *,
    root: str | Path | None = None,
    keep_missing: bool = False,
    test_share: float = 0.5,
    split_column: str = "split",
) -> DataHalves:
    """Read a CSV file with a header and the columns `path`, `label` and optionally `split` (train or test).

    Relative paths start at `root`, or else at the folder of the CSV file. Labels are any text, sorted by number if all
    are integers. Without `split`, the first half of the sorted classes trains (the larger half if their number is
    odd), or all but the last `test_share` of them. Other columns are ignored. With another `split_column`, that one
    says train or test. Rows whose files do not exist are an error, unless `keep_missing` leaves them for the caller to
    find.
    """
    if not str(path):
        raise UserError("no file is named: set `path` to a CSV file with the columns path and label")
    path = Path(path).expanduser()
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, not a file: set `path` to a CSV file with the columns path and label; one subfolder "
            "per class is read by `folder` in place of `csv`"
        )
    if not path.is_file():
        raise UserError(f"there is no file {path}: set `path` to a CSV file with the columns path and label")
    rows = _read(path, path.parent if root is None else Path(root).expanduser(), split_column)
    rows, notes = _without_duplicates(path, rows)
    if reading.skip_broken:
        kept, left_out = readable([row.path for row in rows])
        rows, notes = [rows[index] for index in kept], [*notes, *left_out]
    elif not keep_missing:
        _check_files(path, rows)
    return divide(
        reading.source([row.path for row in rows]),
        [row.label for row in rows],
        [row.split for row in rows if row.split is not None] or None,
        origin=str(path),
        drop_small_classes=reading.drop_small_classes,
        test_share=test_share,
        notes=notes,
    )


def _read(path: Path, root: Path, split_column: str) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter_of(file.readline()), strict=True)
            file.seek(0)
            header = [name.strip() for name in next(reader, [])]
            columns = _columns(path, header, split_column)
            rows = [_row(path, root, reader.line_num, cells, header, columns) for cells in reader if cells]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8 ({error}): save it as UTF-8") from error
    except csv.Error as error:
        raise UserError(f"{path} is not a proper CSV file in row {reader.line_num} ({error}): repair it") from error
    if not rows:
        raise UserError(f"{path} has no rows below its header: add images")
    return rows


def delimiter_of(header: str) -> str:
    """Find what separates the columns of a table: a comma, or what spreadsheets write instead in many countries."""
    for mark in ",;\t":
        names = [name.strip().strip('"') for name in header.split(mark)]
        if len(names) > 1 and "path" in names:
            return mark
    return ","


def _columns(path: Path, header: list[str], split_column: str) -> dict[str, int]:
    """Find the columns path, label and split in the header, the last under the name `split_column`."""
    if split_column != "split" and split_column not in header:
        raise UserError(
            f"{path} has no column {split_column!r} in row 1 (found: {listing(header) or 'nothing'}): set "
            "`split_column` to the one that says train or test"
        )
    for name in ("path", "label"):
        if name not in header:
            raise UserError(
                f"{path} has no column {name!r} in row 1 (found: {listing(header) or 'nothing'}): "
                "the first row must name the columns path,label[,split]"
            )
    for name in ("path", "label", split_column):
        if header.count(name) > 1:
            raise UserError(f"{path} has {header.count(name)} columns {name!r} in row 1: rename or remove all but one")
    names = {"path": "path", "label": "label", "split": split_column}
    return {part: header.index(name) for part, name in names.items() if name in header}


def _row(path: Path, root: Path, number: int, cells: list[str], header: list[str], columns: dict[str, int]) -> Row:
    if len(cells) > len(header):
        raise UserError(
            f"{path} has {len(cells)} cells in row {number} but {len(header)} columns: quote cells that contain a comma"
        )
    values = {name: cells[index].strip() if index < len(cells) else "" for name, index in columns.items()}
    for name, value in values.items():
        if not value:
            title = header[columns[name]]
            raise UserError(f"{path} has an empty cell in row {number}, column {title!r}: fill it in or remove the row")
    split = values.get("split")
    if split is not None and split not in SPLITS:
        title = header[columns["split"]]
        raise UserError(f"{path} has {split!r} in row {number}, column {title!r}: it must be 'train' or 'test'")
    return Row(number, Path(os.path.normpath(root / values["path"])), values["label"], split)


def _without_duplicates(path: Path, rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Drop rows that repeat an image: it would find itself. Two labels or splits for one image are an error."""
    first: dict[Path, Row] = {}
    repeated = []
    for row in rows:
        earlier = first.setdefault(row.path, row)
        if (earlier.label, earlier.split) != (row.label, row.split):
            column = "label" if earlier.label != row.label else "split"
            raise UserError(
                f"{path} has {row.path} in rows {earlier.number} and {row.number} with different values in column "
                f"{column!r}: remove one of them"
            )
        if earlier is not row:
            repeated.append(str(row.number))
    notes = [f"left out {len(repeated)} rows that repeat an image: rows {listing(repeated)}"] if repeated else []
    return list(first.values()), notes


def _check_files(path: Path, rows: list[Row]) -> None:
    missing = [row for row in rows if not row.path.is_file()]
    if missing:
        of_windows = os.sep == "/" and all("\\" in str(row.path) for row in missing)
        correct = "write / in place of \\ in its paths" if of_windows else "correct the path"
        raise UserError(
            f"{path} names a file in row {missing[0].number}, column 'path', that does not exist: {missing[0].path} "
            f"({len(missing)} of {len(rows)} are missing): {correct}, set `root` to the folder that paths "
            "start from, or set `skip_broken`=true to leave out such rows"
        )
