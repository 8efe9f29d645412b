import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from ccp_dml.benchmark.formats import write_tables
from ccp_dml.benchmark.improvement_figure import write_figure
from ccp_dml.benchmark.page import headline, write_benchmark_report
from ccp_dml.benchmark.results import ResultRow
from ccp_dml.benchmark.table import build_table
from ccp_dml.cli import main
from ccp_dml.records.benchmark_folder import BenchmarkFolder

REQUEST = {
    "protocol": "mlrc",
    "data": "cub",
    "methods": ["c2", "c2-ccp"],
    "repeats": 1,
    "settings": ["data.root=/data/cub birds"],
}


def results() -> list[ResultRow]:
    settings = [("separated", 128, fold) for fold in range(2)] + [("concatenated", 512, None)]
    return [
        ResultRow(
            "mlrc", "cub", "bn_inception", 227, method, setting, dim, 0, fold, 1, "validation", metric,
            value + 0.01 * (fold or 0), 50, 100, f"{method}/repeat0/fold{fold}",
        )
        for method, value in (("c2", 0.20), ("c2-ccp", 0.25))
        for setting, dim, fold in settings
        for metric in ("precision_at_1", "map_at_r")
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    """Two methods with two folds each, one of which is still training; finished runs have reports of their own."""
    folder = tmp_path / "mlrc cub"
    for method in REQUEST["methods"]:
        for fold in range(2):
            run = folder / method / "repeat0" / f"fold{fold}"
            write_run(run, is_ccp=method == "c2-ccp", finished=(method, fold) != ("c2", 1))
            (run / "report.html").write_text("a report")
    (folder / "c2" / "repeat0" / "fold1" / "report.html").unlink()
    (folder / "benchmark.toml").write_text(tomli_w.dumps(REQUEST))
    table = build_table(results(), REQUEST["methods"], title="MLRC protocol on cub", notes=["A <note>."])
    write_tables(folder, table)
    write_figure(folder, table)
    return folder


def page(folder: Path) -> str:
    return write_benchmark_report(BenchmarkFolder.read(folder), folder / "report.html").read_text()


def words(text: str, section: str) -> str:
    match = re.search(rf'<section id="{section}".*?</section>', text, re.DOTALL)
    assert match, f"no section {section}"
    return " ".join(re.sub(r"<[^>]+>", " ", match[0]).split())


def test_the_outcome_is_told_first_with_the_paper_beside_it(folder: Path) -> None:
    text = page(folder)
    outcome = words(text, "outcome")
    assert (
        "c2-ccp has the highest MAP@R on unseen classes: 25.50 ± 0.71 % (128-D, separated). c2-ccp against c2, the "
        "second: +5.00 points, 95 % interval +5.00 to +5.00 (Student&#39;s t over 2 pairs): better." in outcome
    )
    assert "c2 20.50 ± 0.71" in outcome
    assert "(21.01, -0.51)" in outcome
    assert "A &lt;note&gt;." in outcome
    assert text.index('id="outcome"') < text.index('id="curves"') < text.index('id="runs"')
    assert 'src="data:image/svg+xml;base64,' in text


def test_every_run_has_a_line_and_a_link_to_its_report(folder: Path) -> None:
    text = page(folder)
    assert 'href="c2-ccp/repeat0/fold1/report.html"' in text
    assert 'href="c2/repeat0/fold1' not in text  # it has no report yet
    assert "c2/repeat0/fold1 unfinished" in words(text, "runs")
    elsewhere = write_benchmark_report(BenchmarkFolder.read(folder), folder.parent / "pages" / "all.html").read_text()
    assert 'href="../mlrc%20cub/c2/repeat0/fold0/report.html"' in elsewhere


def test_a_run_that_has_just_begun_does_not_take_the_curve_of_its_method_away(folder: Path) -> None:
    (folder / "c2" / "repeat0" / "fold1" / "metrics.jsonl").write_text("")
    curves = words(page(folder), "curves")
    assert "c2 (1 run)" in curves
    assert "c2-ccp (2 runs)" in curves


def test_cost_is_per_method(folder: Path) -> None:
    cost = words(page(folder), "cost")
    assert re.search(r"c2 68\.0 ms 2,000", cost)
    assert re.search(r"c2-ccp 67\.6 ms 0\.99 × 2,000 1\.00 ×", cost)  # noqa: RUF001


def test_a_run_that_was_cut_short_is_not_in_the_cost_of_its_method(folder: Path) -> None:
    log = folder / "c2" / "repeat0" / "fold1" / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:5]))
    assert re.search(r"c2 68\.0 ms 2,000", words(page(folder), "cost"))


def test_an_interrupted_benchmark_has_no_table_but_a_page(folder: Path, capsys: pytest.CaptureFixture) -> None:
    (folder / "table.json").unlink()
    outcome = words(page(folder), "outcome")
    assert "No table yet. 3 of the 4 runs begun so far are finished." in outcome
    assert "--set &#39;data.root=/data/cub birds&#39;" in outcome
    assert main(["report", str(folder)]) == 0
    assert "There is no table yet; the benchmark's command goes on" in capsys.readouterr().err


def test_one_command_does_it_again(folder: Path) -> None:
    command = BenchmarkFolder.read(folder).command()
    assert command == (
        "ccp benchmark mlrc --data cub --methods c2,c2-ccp --repeats 1 --set 'data.root=/data/cub birds' "
        f"--out '{folder}'"
    )


def test_the_command_finds_out_what_it_is_given(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr()
    assert "MLRC protocol on cub" in told.out
    assert "The table is older than the runs" in told.err  # one of them is not finished
    assert "Benchmark</p>" in (folder / "report.html").read_text()
    assert main(["report", str(folder), str(folder / "c2" / "repeat0" / "fold0")]) == 2
    assert "reported on alone" in capsys.readouterr().err
    assert main(["report", str(folder / "c2" / "repeat0" / "fold0"), "--out", str(folder / "one.html")]) == 0
    assert "Training report</p>" in (folder / "one.html").read_text()


def test_a_single_method_wins_nothing() -> None:
    table = build_table([row for row in results() if row.method == "c2"], ["c2"], title="one")
    assert headline(table) is None


def test_nobody_wins_a_column_that_others_have_no_score_in() -> None:
    """The ensemble of c2 is missing: the separated models decide, and nobody does where every column has a gap."""
    found = results()
    without_ensemble = [row for row in found if (row.method, row.setting) != ("c2", "concatenated")]
    table = build_table(without_ensemble, ["c2", "c2-ccp"], title="two")
    assert headline(table)["group"] == table.columns[0].group
    alone = [row.cells[-1] for row in table.rows]
    assert alone[0] is None
    assert not alone[1].is_best
    other_dimension = [replace(row, dim=8) if row.method == "c2-ccp" else row for row in found]
    assert headline(build_table(other_dimension, ["c2", "c2-ccp"], title="two")) is None


def test_a_winner_that_others_are_compared_with_is_no_clear_one_by_itself() -> None:
    """c2 has the highest mean, and one of the two methods that are compared with it is not clearly worse."""
    values = {"c2": (0.30, 0.32), "c2-ccp": (0.31, 0.30), "ms": (0.20, 0.2201)}
    found = [
        replace(results()[0], method=method, metric="map_at_r", fold=fold, value=value)
        for method, of_folds in values.items()
        for fold, value in enumerate(of_folds)
    ]
    told = headline(build_table(found, list(values), title="three"))
    assert told["method"] == "c2"
    assert not told["is_winner"]
    assert told["verdict"].startswith("c2 against c2-ccp, the second: +0.50 points")
    assert told["verdict"].endswith(": no clear difference.")
    assert headline(build_table(found[1:], list(values), title="three")) is None, "c2 lacks a run that others have"


def of_folds(**values: tuple[float, ...]) -> list[ResultRow]:
    """MAP@R of methods, one per fold; None: the fold is missing."""
    return [
        replace(results()[0], method=method.replace("_", "-"), metric="map_at_r", fold=fold, value=value)
        for method, scores in values.items()
        for fold, value in enumerate(scores)
        if value is not None
    ]


def test_a_lead_over_the_second_that_pairs_do_not_show_is_no_win(folder: Path) -> None:
    """c2-ccp is clearly above its baseline, and level with the control: nothing says that choosing anew helped."""
    found = of_folds(c2=(0.20, 0.21, 0.22), c2_proxy=(0.252, 0.259, 0.271), c2_ccp=(0.250, 0.261, 0.272))
    methods = ["c2", "c2-proxy", "c2-ccp"]
    table = build_table(found, methods, title="level")
    told = headline(table)
    assert (told["method"], told["is_winner"]) == ("c2-ccp", False)
    assert not any(row.cells[0].is_bold for row in table.rows)
    (note,) = [text for text in table.notes if "winner" in text]
    assert note.startswith("No clear winner in MAP@R (128-D, separated). c2-ccp against c2-proxy, the second: +0.03 ")
    write_tables(folder, table)
    assert "No clear winner. c2-ccp has the highest MAP@R" in words(page(folder), "outcome")

    ahead = of_folds(c2=(0.20, 0.21, 0.22), c2_proxy=(0.252, 0.259, 0.271), c2_ccp=(0.282, 0.290, 0.301))
    table = build_table(ahead, methods, title="ahead")
    assert headline(table)["is_winner"]
    assert [row.cells[0].is_bold for row in table.rows] == [False, False, True]
    assert any(text.startswith("c2-ccp wins in MAP@R (128-D, separated). c2-ccp against") for text in table.notes)


def test_the_headline_rests_on_the_most_pairs_that_there_are() -> None:
    """Two ensembles of each method, whose lead varies, tell less than eight models do."""
    models = of_folds(c2=(0.20, 0.21) * 4, c2_ccp=(0.24, 0.26) * 4)
    ensembles = [
        replace(row, setting="concatenated", dim=512, fold=None, repeat=row.fold)
        for row in of_folds(c2=(0.30, 0.31), c2_ccp=(0.33, 0.40))
    ]
    table = build_table([*models, *ensembles], ["c2", "c2-ccp"], title="two")
    assert [cell.is_bold for cell in table.rows[1].cells] == [True, False]
    told = headline(table)
    assert (told["method"], told["is_winner"], told["group"]) == ("c2-ccp", True, "128-D, separated")


def test_who_is_clearly_above_the_second_may_still_be_level_with_a_third() -> None:
    found = of_folds(c2=(0.30, 0.10, 0.20), ms=(0.29, 0.30, 0.31), c2_ccp=(0.31, 0.32, 0.33))
    told = headline(build_table(found, ["c2", "ms", "c2-ccp"], title="three"))
    assert not told["is_winner"]
    assert told["verdict"].endswith(": better; nor is it clearly above c2.")


def test_nobody_wins_by_runs_of_other_folds() -> None:
    """Both have two runs, but the better one has them on the folds that the other lacks, which may be easy."""
    table = build_table(of_folds(c2=(0.2, 0.2), ms=(None, None, 0.3, 0.3)), ["c2", "ms"], title="two")
    assert headline(table) is None
    assert not any(row.cells[0].is_bold for row in table.rows)


def test_one_pair_of_ensembles_does_not_hide_the_pairs_of_models() -> None:
    table = build_table([row for row in results() if row.fold != 1], ["c2", "c2-ccp"], title="one fold")
    assert headline(table)["group"] == "512-D, concatenated"
    assert "tells nothing about chance" in headline(table)["verdict"]
    assert headline(build_table(results(), ["c2", "c2-ccp"], title="two folds"))["group"] == "128-D, separated"


def test_a_table_that_is_older_than_its_runs_is_said_to_be(folder: Path, write_run: Callable[..., Path]) -> None:
    assert "The table is older than the runs below." in words(page(folder), "outcome"), "it counts an unfinished run"
    shutil.rmtree(folder / "c2" / "repeat0" / "fold1")
    write_run(folder / "c2" / "repeat0" / "fold1", is_ccp=False, finished=True)
    assert "older" not in words(page(folder), "outcome")


def test_a_method_that_failed_altogether_hides_nothing_of_the_others(folder: Path) -> None:
    methods = ["broken", *REQUEST["methods"]]
    table = build_table(results(), methods, title="three")
    assert headline(table)["method"] == "c2-ccp"
    write_tables(folder, table)
    (folder / "benchmark.toml").write_text(tomli_w.dumps({**REQUEST, "methods": ["broken.toml", *REQUEST["methods"]]}))
    begun = folder / "broken" / "repeat0" / "fold0"
    begun.mkdir(parents=True)
    (begun / "config.toml").write_text("")
    cost = words(page(folder), "cost")
    assert "The time per step is of training alone" in cost
    assert "broken" not in cost
    assert re.search(r"c2-ccp 67\.6 ms 0\.99 ×", cost), "the ratio is to the first method that has a time"  # noqa: RUF001


def test_classes_that_selected_are_not_called_unseen(folder: Path) -> None:
    marked = build_table([replace(row, selected_on="test") for row in results()], REQUEST["methods"], title="marked")
    write_tables(folder, marked)
    outcome = words(page(folder), "outcome")
    assert "c2-ccp * has the highest MAP@R on test classes: 25.50" in outcome
    assert "unseen" not in outcome


def test_classes_that_trained_are_not_called_unseen(folder: Path) -> None:
    for run in BenchmarkFolder.read(folder).runs.values():
        (run.path / "classes.json").write_text(json.dumps({"learned": ["a", "b"], "test": ["b", "c"]}))
    outcome = words(page(folder), "outcome")
    assert "c2-ccp has the highest MAP@R on new images of classes that trained: 25.50" in outcome
    assert "unseen" not in outcome
