"""A benchmark's table kept as JSON in its folder, so that a report shows it exactly as it was computed."""

import json
from dataclasses import asdict
from pathlib import Path

from ccp_dml.benchmark.results import Spread
from ccp_dml.benchmark.table import BenchmarkTable, Cell, Column, TableRow
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import write_json

FILE = "table.json"


def write_table(folder: Path, table: BenchmarkTable) -> None:
    write_json(folder / FILE, asdict(table))


def read_table(folder: Path) -> BenchmarkTable | None:
    """The table that `write_table` left in `folder`, if any."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            TableRow(row["method"], row["is_marked"], [_cell(cell) for cell in row["cells"]]) for row in values["rows"]
        ]
        return BenchmarkTable(values["title"], [Column(**one) for one in values["columns"]], rows, values["notes"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); repeat the benchmark's command, which writes it anew without training again."
        ) from None


def _cell(values: dict | None) -> Cell | None:
    return None if values is None else Cell(Spread(**values["score"]), values["paper"], values["is_best"])
