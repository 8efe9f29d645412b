from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.made_up_runs import write_run

from ccp_dml.records.run_folder import RunFolder, read_runs
from ccp_dml.reports.tables import comparison_table, evaluation_table


def printed(table: Table, styled: bool = False) -> str:
    console = Console(width=120, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text(styles=styled)


def test_runs_stand_side_by_side_with_their_gain(two_runs: list[Path]) -> None:
    lines = printed(comparison_table(read_runs(two_runs))).splitlines()
    baseline = next(line for line in lines if " c2 " in line)
    ccp = next(line for line in lines if " c2-ccp " in line)
    assert [cell.strip() for cell in baseline.split("│")[1:-1]] == ["c2", "30.8", "39.8", "65.8", "2,000", "1", ""]
    assert [cell.strip() for cell in ccp.split("│")[1:-1]] == [
        "c2-ccp",
        "41.1",
        "50.1",
        "76.1",
        "2,000",
        "5",
        "+10.4 points (+33.6 %)",
    ]


def test_one_pair_of_runs_makes_nothing_bold_and_says_why(two_runs: list[Path]) -> None:
    text = printed(comparison_table(read_runs(two_runs)), styled=True)
    assert "\x1b[1m 41.1\x1b[0m" not in text
    plain = " ".join(printed(comparison_table(read_runs(two_runs))).split())
    assert "c2-ccp against c2, MAP@R: +10.35 points in one pair of runs, which tells nothing about chance" in plain


def test_runs_that_were_tested_on_different_data_have_no_gain_and_say_why(two_runs: list[Path]) -> None:
    first, second = read_runs(two_runs)
    other = replace(second, config={**second.config, "data": {**second.config["data"], "classes": 9}})
    text = " ".join(printed(comparison_table([first, other])).split())
    assert "Different data: glyphs, data.classes = –; glyphs, data.classes = 9." in text  # noqa: RUF001
    assert "points" not in text


def test_a_single_run_is_compared_with_nothing(two_runs: list[Path]) -> None:
    text = printed(comparison_table([RunFolder.read(two_runs[0])]))
    assert "30.8" in text
    assert "gain" not in text


def test_an_unfinished_run_says_so_and_a_name_is_no_markup(write_run: Callable[..., Path], tmp_path: Path) -> None:
    run = RunFolder.read(write_run(tmp_path / "[bold]x", finished=False))
    assert "[bold]x (unfinished)" in printed(comparison_table([run]))


def test_an_evaluation_shows_runs_mean_and_ensemble() -> None:
    def row(value: float) -> dict[str, float]:
        return {"map_at_r": value, "r_precision": value + 0.1, "precision_at_1": value + 0.2, "queries": 4800}

    spread = {key: {"mean": 0.35, "sd": 0.07, "n": 2} for key in ("map_at_r", "r_precision", "precision_at_1")}
    text = printed(
        evaluation_table({"runs": {"a": row(0.3), "b": row(0.4)}, "separated": spread, "concatenated": row(0.45)})
    )
    assert "separated (mean ± sd, n = 2)" in text
    assert "35.0 ± 7.0" in text
    concatenated = next(line for line in text.splitlines() if "concatenated" in line)
    assert [cell.strip() for cell in concatenated.split("│")[2:-1]] == ["45.0", "55.0", "65.0", "4,800"]


def test_an_evaluated_run_that_was_selected_on_test_classes_is_marked() -> None:
    row = {"map_at_r": 0.3, "r_precision": 0.4, "precision_at_1": 0.5, "queries": 10}
    runs = {"a": row | {"selected_on": "validation"}, "b": row | {"selected_on": "test"}}
    text = printed(evaluation_table({"runs": runs}))
    assert ("b *" in text, "a *" in text) == (True, False)
    assert "* selected on the test classes themselves" in " ".join(text.split())
    assert "selected" not in printed(evaluation_table({"runs": {"a": runs["a"]}}))


def test_one_evaluated_run_has_no_mean() -> None:
    row = {"map_at_r": 0.3, "r_precision": 0.4, "precision_at_1": 0.5, "queries": 10}
    text = printed(evaluation_table({"runs": {"a": row}, **row}))
    assert "30.0" in text
    assert "separated" not in text


def test_long_names_are_folded_not_cut(write_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / f"{'long' * 12}{number}") for number in range(2)])
    narrow = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    narrow.print(comparison_table(runs))
    text = narrow.export_text()
    assert "…" not in text
    assert "+0.0 points (+0.0 %)" in text


def test_sentences_below_the_table_begin_at_the_left(write_run: Callable[..., Path], tmp_path: Path) -> None:
    text = printed(comparison_table(read_runs([write_run(tmp_path / "a", is_ccp=False), write_run(tmp_path / "b")])))
    below = [line for line in text.splitlines() if "chance" in line or "against" in line]
    assert below
    assert all(line[0] != " " for line in below)


def test_runs_on_incomplete_data_are_marked(tmp_path):
    run = RunFolder.read(write_run(tmp_path / "run"))
    short = replace(run, outline={"incomplete": ["not Cars196 as published: test has 8,116 images"]})
    shown = " ".join(printed(comparison_table([short])).split())
    assert "run †" in shown
    assert "† not Cars196 as published: test has 8,116 images" in shown
    assert "†" not in printed(comparison_table([run]))
