"""The images that a command names: files, folders, patterns and tables, each with its label and attributes."""

import csv
import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ccp_dml.data.files.class_folders import images_below
from ccp_dml.data.files.csv_table import TABLES, delimiter_of
from ccp_dml.data.files.images import SUFFIXES
from ccp_dml.data.splits import SPLITS
from ccp_dml.errors import UserError, listing
from ccp_dml.serving.search.where import COLUMNS, Value

PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


@dataclass(frozen=True)
class ListedImage:
    """An image file, absolute, with what is known about it beforehand."""

    path: Path
    label: str | None = None
    attributes: dict[str, Value] = field(default_factory=dict)

    def amended(self, later: "ListedImage") -> "ListedImage":
        """Add what a later listing states, which wins; what it does not state stays.

        One thing does not stay: the old subfolders of a file that has moved, if the listing states anything about it.
        """
        label = self.label if later.label is None else later.label
        known = dict(self.attributes)
        if later.path != self.path and (later.label is not None or later.attributes):
            known.pop("folder", None)
        return ListedImage(later.path, label, known | later.attributes)


def list_images(inputs: Sequence[str | Path]) -> list[ListedImage]:
    """List all images that `inputs` name, each once, in the order of the inputs.

    A folder gives all images below it: the first subfolder is the label (below `train` and `test`, the second one, and
    `split` says which), further subfolders are the attribute `folder`. A table has the columns `path` and perhaps
    `label`; all others are attributes. Single files and patterns have no label.
    """
    return each_once(image for given in inputs for image in _listed(str(given)))


def each_once(images: Iterable[ListedImage]) -> list[ListedImage]:
    """Join all that is stated about each file, of attributes what comes last; two labels for one are a mistake."""
    found: dict[Path, ListedImage] = {}
    for image in images:
        earlier = found.get(image.path, image)
        if earlier.label is not None and image.label is not None and earlier.label != image.label:
            raise UserError(
                f"{image.path} is named twice, with the labels {earlier.label!r} and {image.label!r}; "
                "name it once, or give both the same label."
            )
        found[image.path] = earlier.amended(image)
    return list(found.values())


def _listed(given: str) -> list[ListedImage]:
    path = Path(given).expanduser()
    if path.is_dir():
        images = _of_folder(path)
        if not images:
            raise UserError(f"{given} has no images below it ({', '.join(sorted(SUFFIXES))}).")
        return images
    if path.suffix.lower() in TABLES:
        return _of_table(path)
    if path.is_file():
        return [ListedImage(absolute(path))]
    matches = sorted(glob.glob(str(path), recursive=True)) if glob.has_magic(given) else []
    images = [image for match in matches for image in _of_match(Path(match))]
    if not images:
        raise UserError(f"There is no image, folder or CSV file {given}, and no image that fits it as a pattern.")
    return images


def _of_match(path: Path) -> list[ListedImage]:
    if path.is_dir():
        return _of_folder(path)
    return [ListedImage(absolute(path))] if path.suffix.lower() in SUFFIXES else []


def _of_folder(folder: Path) -> list[ListedImage]:
    has_splits = all((folder / split).is_dir() for split in SPLITS)
    images = []
    for path in images_below(folder):
        parents = path.relative_to(folder).parts[:-1]
        attributes: dict[str, Value] = {}
        if has_splits and parents and parents[0] in SPLITS:
            attributes["split"], parents = parents[0], parents[1:]
        if len(parents) > 1:
            attributes["folder"] = "/".join(parents[1:])
        images.append(ListedImage(absolute(path), parents[0] if parents else None, attributes))
    return images


def _of_table(file: Path) -> list[ListedImage]:
    """Read the rows of a CSV file, or of one with tabs; relative paths start at its folder."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as handle:
            delimiter = "\t" if file.suffix.lower() == ".tsv" else delimiter_of(handle.readline())
            handle.seek(0)
            reader = csv.reader(handle, delimiter=delimiter, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]  # lines as an editor counts them
    except FileNotFoundError:
        raise UserError(f"There is no file {file}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file} is not a proper CSV file in UTF-8 ({error}); save it again as such.") from None
    header = [name.strip() for name in rows[0][1]] if rows else []
    if "path" not in header:
        raise UserError(f"{file} has no column 'path' in row 1 (found: {listing(header) or 'nothing'}); name one so.")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise UserError(f"{file} has several columns {listing(repeated)}; give each column a name of its own.")
    if taken := [name for name in header if name in COLUMNS and name not in ("path", "label")]:
        raise UserError(f"{file} has a column {taken[0]!r}, which means the label in conditions; rename it.")
    if "label" not in header and (meant := [name for name in header if name.lower() == "label"]):
        raise UserError(f"{file} has a column {meant[0]!r}, but the one with labels is called 'label'; rename it.")
    if len(rows) == 1:
        raise UserError(f"{file} has no rows below its header; add images.")
    cells = []
    for number, row in rows[1:]:
        if len(row) > len(header):
            raise UserError(
                f"{file} has {len(row)} cells in row {number} but {len(header)} columns; quote cells with a comma."
            )
        cells.append(dict(zip(header, [cell.strip() for cell in row], strict=False)))
        if not cells[-1].get("path"):
            raise UserError(f"{file} has an empty cell in row {number}, column 'path'; fill it in.")
    others = [name for name in header if name not in ("path", "label")]
    values = {name: _column_values([row.get(name, "") for row in cells]) for name in others}
    paths = [Path(row["path"]).expanduser() for row in cells]
    images = []
    for place, path in enumerate(paths):
        attributes = {name: value for name in others if (value := values[name][place]) is not None}
        images.append(ListedImage(absolute(file.parent / path), cells[place].get("label") or None, attributes))
    if not all(map(Path.is_absolute, paths)) and not any(os.path.exists(image.path) for image in images):
        raise UserError(
            f"{file} names no image that is there, such as {cells[0]['path']!r} in row {rows[1][0]}; relative paths "
            f"start at its own folder, {absolute(file.parent)}. Correct them, or move the table."
        )
    return images


def _column_values(cells: Sequence[str]) -> list[Value | None]:
    """Convert to numbers if all that is filled in are plain ones, else to texts; None where nothing is filled in."""
    if not all(_is_plain_number(cell) for cell in cells if cell):
        return [cell or None for cell in cells]
    numbers = [float(cell) if cell else None for cell in cells]
    return [int(number) if number is not None and number.is_integer() else number for number in numbers]


def _is_plain_number(cell: str) -> bool:
    """Tell numbers from codes, which must stay as they are: 00123, 1_2, 12e4, more digits than a float can hold."""
    return PLAIN_NUMBER.fullmatch(cell) is not None and abs(float(cell)) < 2**53


def absolute(path: Path) -> Path:
    """Spell a path as lists and indexes have it: from the root, without `..`, and links as they are named."""
    return Path(os.path.abspath(path.expanduser()))
