"""The table as Markdown, CSV, LaTeX and on the terminal."""

import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console
from support.made_up_results import built, results

from ccp_dml.benchmark.formats import (
    as_latex,
    as_markdown,
    as_plain_csv,
    as_terminal,
    latex_text,
    markdown_text,
    runs_of,
    write_tables,
)


def test_markdown_shows_everything_beside_each_other():
    text = as_markdown(built())
    assert "| c2 | 21.50 ± 1.29 (21.01, +0.49) | 4 | 26.00 (26.47, -0.47) | 1 |" in text
    assert "| c2-ccp | **23.50 ± 1.29** (22.67, +0.83) | 4 | 28.00 (28.02, -0.02) | 1 |" in text
    assert "MAP@R (128-D, separated)" in text


def test_csv_has_fractions_for_machines():
    lines = list(csv.DictReader(io.StringIO(as_plain_csv(built()))))
    assert [(line["method"], line["setting"]) for line in lines[:2]] == [("c2", "separated"), ("c2", "concatenated")]
    assert float(lines[0]["mean"]) == pytest.approx(0.215)
    assert lines[1]["sd"] == ""
    assert float(lines[1]["gap"]) == pytest.approx(-0.0047)


def test_latex_is_a_tabular_with_the_right_number_of_cells():
    text = as_latex(built(methods=("c2", "c2-ccp", "odd_name&co")))
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].strip().splitlines()[1:]
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"\multicolumn{2}{c}{128-D, separated}" in text
    assert all(line.count(" & ") == 4 for line in body)
    assert r"\textbf{23.50 $\pm$ 1.29} {\scriptsize (22.67, $+$0.83)}" in body[1]
    assert r"odd\_name\&co & -- & -- & -- & --" in body[2]


def test_the_terminal_shows_one_table_per_setting_within_80_columns():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(as_terminal(built()))
    text = console.export_text()
    assert "21.50 ± 1.29" in text
    assert "(21.01, +0.49)" in text
    assert text.count("method") == 2


def test_all_formats_are_written(tmp_path):
    write_tables(tmp_path, built())
    assert {path.name for path in tmp_path.iterdir()} == {"table.json", "table.md", "table.csv", "table.tex"}
    assert (tmp_path / "table.tex").read_text() == as_latex(built())


def test_different_numbers_of_runs_in_a_group_are_told():
    rows = [row for row in results() if (row.method, row.fold) != ("c2-ccp", 3)]
    more = [replace(row, metric="r_precision") for row in results()]
    table = built(rows + more)
    assert runs_of(table.rows[1], table.groups()[0][1]) == "3/4"
    assert runs_of(table.rows[0], table.groups()[0][1]) == "4"


def test_names_are_text_in_every_language():
    assert markdown_text("a_b|c*") == r"a\_b\|c\*"
    assert latex_text("a_b & 50 % ~x^2\\") == r"a\_b \& 50 \% \textasciitilde{}x\textasciicircum{}2\textbackslash{}"
