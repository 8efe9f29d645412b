"""Results of a benchmark put into a table, and the table put on paper."""

import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from ccp_dml.benchmark.formats import as_latex, as_markdown, as_plain_csv, as_terminal
from ccp_dml.benchmark.improvement_figure import improvements, write_figure
from ccp_dml.benchmark.results import ResultRow, write_results
from ccp_dml.benchmark.table import build_table
from ccp_dml.evaluation import spread
from ccp_dml.reports.words import MISSING

EXAMPLE = ResultRow(
    protocol="mlrc",
    dataset="cub",
    backbone="bn_inception",
    image_size=227,
    method="c2",
    setting="separated",
    dim=128,
    repeat=0,
    fold=0,
    seed=0,
    selected_on="validation",
    metric="map_at_r",
    value=0.2,
    best_step=50,
    steps=100,
    folder="c2/repeat0/fold0",
)


def results(**changes):
    """Four models and an ensemble of C2 and of C2-CCP."""
    rows = []
    for method, value in (("c2", 0.20), ("c2-ccp", 0.22)):
        for fold in range(4):
            rows.append(replace(EXAMPLE, method=method, fold=fold, value=value + 0.01 * fold, **changes))
        ensemble = {"setting": "concatenated", "dim": 512, "fold": None, "seed": None, "value": value + 0.06}
        rows.append(replace(EXAMPLE, method=method, **{**changes, **ensemble}))
    return rows


def built(rows=None, methods=("c2", "c2-ccp"), **options):
    return build_table(results() if rows is None else rows, methods, title="MLRC on cub", **options)


def test_a_spread_has_mean_sample_deviation_and_number():
    found = spread([0.1, 0.2, 0.3])
    assert (found.mean, found.sd, found.n) == (pytest.approx(0.2), pytest.approx(0.1), 3)
    assert spread([0.5]).sd is None  # a single run says nothing about spread


def test_a_cell_has_mean_spread_paper_and_gap():
    table = built()
    assert [column.group for column in table.columns] == ["128-D, separated", "512-D, concatenated"]
    separated, concatenated = table.rows[0].cells
    assert separated.score.mean == pytest.approx(0.215)
    assert separated.score.sd == pytest.approx(0.0129099, abs=1e-6)
    assert separated.score.n == 4
    assert separated.paper == pytest.approx(0.2101)
    assert separated.gap == pytest.approx(0.0049)
    assert concatenated.score.sd is None
    assert concatenated.paper == pytest.approx(0.2647)
    assert [cell.is_best for cell in table.rows[0].cells + table.rows[1].cells] == [False, False, True, True]


def test_a_method_without_results_keeps_its_row():
    table = built(methods=("c2", "c2-ccp", "ms"), notes=["ms: 0 of 4 runs are finished."])
    assert table.rows[2].cells == [None, None]
    assert "ms: 0 of 4 runs are finished." in as_markdown(table)
    assert f"| ms |{f' {MISSING} |' * 4}" in as_markdown(table)


def test_markdown_shows_everything_beside_each_other():
    text = as_markdown(built())
    assert "| c2 | 21.50 ± 1.29 (21.01, +0.49) | 4 | 26.00 (26.47, -0.47) | 1 |" in text
    assert "| c2-ccp | **23.50 ± 1.29** (22.67, +0.83) | 4 | **28.00** (28.02, -0.02) | 1 |" in text
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


def test_another_network_size_or_dimension_is_said():
    table = built(results(backbone="tf_efficientnet_lite0", image_size=112, dim=64))
    assert "Here tf_efficientnet_lite0 at 112 px, in the paper BN-Inception at 227 px." in table.notes
    assert "Separated: here 64-D, in the paper 128-D." in table.notes
    assert not any(note.startswith(("Here", "Separated")) for note in built().notes)


def test_data_that_the_paper_lacks_has_no_gap_unless_it_is_named():
    rows = results(dataset="features", backbone="identity", image_size=None)
    assert built(rows).notes == []
    assert built(rows).rows[0].cells[0].gap is None
    named = built(rows, paper_dataset="cub")
    assert named.rows[0].cells[0].gap == pytest.approx(0.0049)
    assert "Compared with the paper's results on CUB." in named.notes
    assert "Here identity, in the paper BN-Inception at 227 px." in named.notes


def test_methods_selected_on_the_test_classes_are_marked():
    rows = [replace(row, selected_on="test") if row.method == "c2" else row for row in results()]
    table = built(rows)
    assert [row.label for row in table.rows] == ["c2 *", "c2-ccp"]
    for text in (as_markdown(table), as_latex(table)):
        assert "selected on the test classes themselves" in text


def test_results_are_a_line_per_run_and_metric(tmp_path):
    write_results(tmp_path, results())
    with (tmp_path / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 10
    assert (lines[0]["method"], lines[0]["fold"], float(lines[0]["value"])) == ("c2", "0", 0.2)
    assert lines[4]["fold"] == ""


def test_improvements_are_relative_to_the_plain_loss():
    (found,) = improvements(built(), 0)
    assert (found.base, found.variant) == ("c2", "-ccp")
    assert found.ours == pytest.approx(0.235 / 0.215 - 1)
    assert found.paper == pytest.approx(0.2267 / 0.2101 - 1)
    assert improvements(built(methods=("c2-ccp",)), 0) == []  # nothing to compare with


def test_the_figure_is_drawn_when_there_is_something_to_compare(tmp_path):
    assert write_figure(tmp_path, built(methods=("c2-ccp",))) == []
    files = write_figure(tmp_path, built())
    assert [file.name for file in files] == ["improvement.png", "improvement.svg"]
    first = files[1].read_bytes()
    write_figure(tmp_path, built())
    assert files[1].read_bytes() == first  # the same results, the same file
