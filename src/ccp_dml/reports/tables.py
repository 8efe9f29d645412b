"""Print scores on the terminal: of runs side by side, and of `ccp evaluate`."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.comparison import ComparedRun, compare, different_data, verdicts, winner
from ccp_dml.reports.gain import raw_name
from ccp_dml.reports.words import SELECTED_ON_TEST, count, percent, tested_on


def comparison_table(runs: Sequence[RunFolder]) -> Table:
    """List test scores in percent and the gain in MAP@R over the first run; bold is what chance does not explain.

    A single run stands above what it started from, the raw backbone.
    """
    compared = compare(runs)
    lines = [SELECTED_ON_TEST] if any(row.is_marked for row in compared) else []
    lines += dict.fromkeys(f"\N{DAGGER} {text}" for run in runs for text in run.incomplete())
    if halves := different_data(runs):
        lines.append(f"Different data: {'; '.join(halves)}. Only scores on the same data can be compared.")
    lines += verdicts(runs) if len(runs) > 1 else []
    lines += [text for text in [winner(runs)] if text is not None]
    caption = Text("\n".join(lines)) if lines else None  # Text, as labels are names, not markup
    table = _score_table(f"Scores on {tested_on(runs)} (%)", "steps", "problems", caption=caption)
    if len(runs) > 1:
        table.add_column("gain in MAP@R", no_wrap=True)
    for row in compared:
        scores = [_score(score.value, score.is_bold) for score in row.scores.values()]
        counts = [count(row.run.count(key)) for key in ("steps", "problems")]
        # Text, not str: a folder named "[bold]" is a name, not markup.
        label = Text(row.label + marks(row) + ("" if row.run.finished else " (unfinished)"))
        gain = [row.scores["map_at_r"].gain_text()] if len(runs) > 1 else []
        table.add_row(label, *scores, *counts, *gain)
    if len(runs) == 1 and (raw := raw_name(runs[0])) is not None:
        table.add_row(Text(raw), *(_score(runs[0].score("raw", key)) for key in SCORE_TITLES))
    return table


def marks(row: ComparedRun) -> str:
    """Mark a run that was selected on test classes, or that an incomplete data set trained and tested."""
    return (" *" if row.is_marked else "") + (" \N{DAGGER}" if row.run.incomplete() else "")


def evaluation_table(scores: dict[str, Any]) -> Table:
    """List what `evaluate_runs` returned: each run and, for several, their mean and their ensemble."""
    is_marked = {name: row.get("selected_on") == "test" for name, row in scores["runs"].items()}
    lines = [SELECTED_ON_TEST] if any(is_marked.values()) else []
    lines += [f"Incomplete data: {text}." for text in scores.get("incomplete", ())]
    caption = Text("\n".join(lines)) if lines else None
    table = _score_table("Scores on the test half (%)", "queries", caption=caption)
    for name, row in scores["runs"].items():
        label = Text(name + (" *" if is_marked[name] else ""))
        table.add_row(label, *(_score(row[key]) for key in SCORE_TITLES), count(row["queries"]))
    if "separated" in scores:
        spread, ensemble = scores["separated"], scores["concatenated"]
        means = [f"{percent(spread[key]['mean'])} ± {percent(spread[key]['sd'])}" for key in SCORE_TITLES]
        table.add_section()
        table.add_row(f"separated (mean ± sd, n = {spread['map_at_r']['n']})", *means)
        table.add_row("concatenated", *(_score(ensemble[key]) for key in SCORE_TITLES), count(ensemble["queries"]))
    return table


def _score_table(title: str, *last: str, caption: Text | None) -> Table:
    table = Table(title=title, caption=caption, caption_justify="left")
    table.add_column("run", overflow="fold")
    for name in (*SCORE_TITLES.values(), *last):
        table.add_column(name, justify="right")
    return table


def _score(value: float | None, is_best: bool = False) -> Text:
    return Text(percent(value), style="bold" if is_best else "")
