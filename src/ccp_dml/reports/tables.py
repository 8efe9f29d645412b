"""Runs side by side on the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ccp_dml.reports.comparison import SCORES, compare, percent
from ccp_dml.reports.run_folder import RunFolder


def comparison_table(runs: Sequence[RunFolder]) -> Table:
    """Test scores in percent, best in bold, and the gain in MAP@R over the first run."""
    compared = compare(runs)
    caption = "* selected on the test classes themselves" if any(row.is_marked for row in compared) else None
    table = Table(title="Scores on unseen classes (%)", caption=caption)
    table.add_column("run")
    for title in SCORES.values():
        table.add_column(title, justify="right")
    table.add_column("steps", justify="right")
    table.add_column("problems", justify="right")
    table.add_column("gain in MAP@R")
    for row in compared:
        scores = [
            Text(percent(standing.value), style="bold" if standing.is_best else "")
            for standing in row.standings.values()
        ]
        counts = [Text(_count(row.run.count(key))) for key in ("steps", "problems")]
        # Text, not str: a folder named "[bold]" is a name, not markup.
        label = Text(row.label + (" *" if row.is_marked else "") + ("" if row.run.finished else " (unfinished)"))
        table.add_row(label, *scores, *counts, Text(row.standings["map_at_r"].gain_text()))
    return table


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
