"""The table of a benchmark, as values and as table.json."""

import pytest

from ccp_dml.errors import UserError
from ccp_dml.evaluation import Spread
from ccp_dml.records.benchmark_table import BenchmarkTable, Cell, Column, TableRow, read_table, write_table

COLUMNS = [
    Column("separated", 128, "map_at_r"),
    Column("separated", 128, "r_precision"),
    Column("single", 64, "recall_at_4"),
]
TABLE = BenchmarkTable(
    "MLRC on <cub>",
    COLUMNS,
    [
        TableRow("c2", True, [Cell(Spread(0.25, 0.5, 4), 0.125, True), None, Cell(Spread(0.5, None, 1), None, False)]),
        TableRow("ms", False, [None, None, None]),
    ],
    ["a note"],
)


def test_a_table_is_read_back_as_it_was(tmp_path):
    assert read_table(tmp_path) is None
    write_table(tmp_path, TABLE)
    assert read_table(tmp_path) == TABLE


def test_titles_groups_marks_and_gaps():
    assert [column.title for column in COLUMNS] == ["MAP@R", "P@R", "R@4"]
    assert TABLE.groups() == [("128-D, separated", [0, 1]), ("64-D, one model", [2])]
    assert [row.label for row in TABLE.rows] == ["c2 *", "ms"]
    assert [cell and cell.gap for cell in TABLE.rows[0].cells] == [0.125, None, None]


@pytest.mark.parametrize("text", ["{", '{"title": "x"}', '{"title": "x", "columns": [{}], "rows": [], "notes": []}'])
def test_a_damaged_table_is_named_with_the_remedy(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(UserError, match=r"table\.json is damaged .*repeat the benchmark's command"):
        read_table(tmp_path)
