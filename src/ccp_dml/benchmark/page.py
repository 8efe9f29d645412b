"""Write the HTML report of a benchmark: its table, curves and cost, with links to the reports of its runs."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ccp_dml.benchmark.formats import own_score, paper_and_gap, runs_of
from ccp_dml.benchmark.table import HEADLINE, best_of
from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.foundation.files import write_text
from ccp_dml.records import layout
from ccp_dml.records.benchmark_folder import BenchmarkFolder
from ccp_dml.records.benchmark_table import BenchmarkTable
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.figures.page_chart import Chart, Curve, draw
from ccp_dml.reports.page import fill, page_file
from ccp_dml.reports.sections.cost import Cost, cost_table
from ccp_dml.reports.sections.curves import mean_curve
from ccp_dml.reports.sections.section import Section, present
from ccp_dml.reports.words import counted, lead_text, tested_on


def write_benchmark_report(benchmark: BenchmarkFolder, out: Path, *, force: bool = False) -> Path:
    """Write the report to the file `out`, and return its path; see `page_file`."""
    out = page_file(out, force=force)
    parts = present(
        outcome(benchmark),
        curves(benchmark),
        cost(benchmark),
        runs(benchmark, out),
        reproduction(benchmark),
    )
    write_text(out, fill(benchmark.title, "Benchmark", parts))
    return out


def outcome(benchmark: BenchmarkFolder) -> Section:
    """Show the table and, above it, which method won and by how much."""
    finished = sum(run.finished for run in benchmark.runs.values())
    rows = benchmark.table.rows if benchmark.table is not None else []
    content = {
        "table": benchmark.table,
        "headline": None if benchmark.table is None else headline(benchmark.table),
        "is_outdated": is_outdated(benchmark),
        "tested_on": "test classes" if any(row.is_marked for row in rows) else tested_on(list(benchmark.runs.values())),
        "finished": finished,
        "runs": len(benchmark.runs),
        "command": benchmark.command(),
        "figure": benchmark.figure,
        "own_score": own_score,
        "paper_and_gap": paper_and_gap,
        "runs_of": runs_of,
    }
    return Section("outcome", "Outcome", "section_benchmark.html", content)


def is_outdated(benchmark: BenchmarkFolder) -> bool:
    """Tell whether runs have ended since the table was written, or are gone: a command was interrupted meanwhile."""
    if benchmark.table is None:
        return False
    in_table: dict[str, int] = {}
    for row in benchmark.table.rows:
        own = zip(benchmark.table.columns, row.cells, strict=True)
        single = [cell.score.n for column, cell in own if cell is not None and column.setting != "concatenated"]
        in_table[row.method] = max(single, default=0)
    finished = {method: sum(run.finished for run in runs) for method, runs in benchmark.methods().items()}
    return any(in_table.get(method, 0) != finished.get(method, 0) for method in {*in_table, *finished})


def headline(table: BenchmarkTable) -> dict[str, Any] | None:
    """Find the best method by MAP@R, and say whether its lead over the second is more than paired runs differ by.

    The column with the most pairs decides, because two ensembles hardly ever show what their eight models do; of
    several, the last. Only columns count in which all methods have the same runs. None if there is no such column: some
    runs failed, or methods embed in different dimensions.
    """
    rows = {row.method: row for row in table.rows if any(row.cells)}  # a method that failed is in the notes
    columns = []
    for place, column in enumerate(table.columns):
        cells = {method: cell for method, row in rows.items() if (cell := row.cells[place]) is not None}
        best = best_of(cells)
        if column.metric == HEADLINE and len(cells) == len(rows) and best is not None:
            columns.append((column, best, cells[best]))
    if not columns:
        return None
    column, best, cell = max(reversed(columns), key=lambda one: one[2].score.n)
    return {
        "method": rows[best].label,
        "is_winner": cell.is_bold,
        "group": column.group,
        "score": own_score(cell),
        "verdict": "" if cell.lead is None else lead_text(best, cell.lead),
    }


def curves(benchmark: BenchmarkFolder) -> Section | None:
    """Draw validation MAP@R over the steps: the mean of each method's runs, as far as all of them came."""
    drawn = []
    for style, (method, runs) in enumerate(to_average(benchmark).items()):
        drawn.append(Curve(f"{method} ({counted(len(runs), 'run')})", mean_curve(runs), style))
    title = f"Validation {SCORE_TITLES['map_at_r']}"
    chart = draw(Chart(title, "step", "in %, mean of a method's runs", [one for one in drawn if one.points], 1))
    return None if chart is None else Section("curves", "Curves", "section_charts.html", {"charts": [chart]})


def to_average(benchmark: BenchmarkFolder) -> dict[str, list[RunFolder]]:
    """List the finished runs of each method: one that has just begun would cut a mean short. All, if none is."""
    return {method: [run for run in runs if run.finished] or runs for method, runs in benchmark.methods().items()}


def cost(benchmark: BenchmarkFolder) -> Section | None:
    """Show the mean cost of a finished run of each method, and ratios to the first method."""
    methods = to_average(benchmark).items()
    return cost_table({method: Cost.mean([Cost.of(run) for run in runs]) for method, runs in methods})


def runs(benchmark: BenchmarkFolder, page: Path) -> Section | None:
    """List the runs, with links from `page` to their own reports."""
    rows = [
        {
            "name": name,
            "run": run,
            "scores": [run.score("test", key) for key in SCORE_TITLES],
            "link": _link(run.path / layout.REPORT, page),
        }
        for name, run in benchmark.runs.items()
    ]
    if not rows:
        return None
    return Section("runs", "Runs", "section_benchmark_runs.html", {"rows": rows, "titles": list(SCORE_TITLES.values())})


def reproduction(benchmark: BenchmarkFolder) -> Section:
    """Show the command that runs the benchmark again."""
    return Section("reproduce", "How to reproduce", "section_reproduction.html", {"command": benchmark.command()})


def _link(target: Path, page: Path) -> str | None:
    """Make a relative link from `page` to `target`; None where there is no such file."""
    if not target.is_file():
        return None
    return quote(Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix())
