"""Write the table of a benchmark as Markdown, CSV and LaTeX, and print it. Scores are in percent, as in the paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ccp_dml.foundation.files import as_csv, write_text
from ccp_dml.records import layout
from ccp_dml.records.benchmark_table import BenchmarkTable, Cell, TableRow, write_table
from ccp_dml.reports.words import MISSING, percent

BOLD = "Bold: the best of its column, and better than every other method by more than chance explains."


def write_tables(folder: Path, table: BenchmarkTable) -> None:
    """Write the table as Markdown, CSV and LaTeX for readers and other programs, and as JSON for the report."""
    write_table(folder, table)
    write_text(folder / layout.TABLE_MARKDOWN, as_markdown(table))
    write_text(folder / layout.TABLE_CSV, as_plain_csv(table))
    write_text(folder / layout.TABLE_LATEX, as_latex(table))


def own_score(cell: Cell) -> str:
    """Write mean and spread, as in `21.03 ± 0.41`, or `21.03` for a single run."""
    sd = "" if cell.score.sd is None else f" ± {percent(cell.score.sd, 2)}"
    return percent(cell.score.mean, 2) + sd


def paper_and_gap(cell: Cell) -> str:
    """Write the paper's score and the gap to it, as in `21.01, +0.02`; empty where the paper has none."""
    return "" if cell.gap is None else f"{percent(cell.paper, 2)}, {100 * cell.gap:+.2f}"


def runs_of(row: TableRow, places: list[int]) -> str:
    """Tell how many runs a group of columns averages over."""
    numbers = {cell.score.n for place in places if (cell := row.cells[place]) is not None}
    return "/".join(map(str, sorted(numbers))) or MISSING


def row_texts(table: BenchmarkTable, row: TableRow, write: Callable[[Cell | None], str]) -> list[str]:
    """List the cells of a method as texts, group by group, each with its number of runs behind it."""
    texts = []
    for _, places in table.groups():
        texts += [write(row.cells[place]) for place in places] + [runs_of(row, places)]
    return texts


def as_markdown(table: BenchmarkTable) -> str:
    heads = ["method"]
    for group, places in table.groups():
        heads += [f"{table.columns[place].title} ({group})" for place in places] + ["n"]
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    rows = [[markdown_text(row.label), *row_texts(table, row, markdown_cell)] for row in table.rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))
    notes = "".join(f"\n- {markdown_text(note)}" for note in table.notes)
    return f"## {table.title}\n\nScores in percent: mean ± standard deviation over n runs. {BOLD}\n\n{body}\n{notes}\n"


def markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    own = f"**{own_score(cell)}**" if cell.is_bold else own_score(cell)
    return f"{own} ({paper})" if (paper := paper_and_gap(cell)) else own


def markdown_text(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*_|\\`[]<>" else letter for letter in text)


def as_plain_csv(table: BenchmarkTable) -> str:
    rows = table_values(table)
    return as_csv(list(rows[0]), rows)


def table_values(table: BenchmarkTable) -> list[dict[str, Any]]:
    """List all scores for machines: an entry per method and score, as fractions."""
    return [
        {
            "method": row.method,
            "setting": column.setting,
            "dim": column.dim,
            "metric": column.metric,
            "mean": cell.score.mean,
            "sd": cell.score.sd,
            "n": cell.score.n,
            "paper": cell.paper,
            "gap": cell.gap,
            "is_best": cell.is_best,
            "selected_on": "test" if row.is_marked else "validation",
            **difference_values(cell),
        }
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None
    ]


def difference_values(cell: Cell) -> dict[str, Any]:
    """List the paired difference of a score to its baseline, as fractions; None where there is none."""
    found = cell.difference
    low, high = (None, None) if found is None or found.interval is None else found.interval
    return {
        "baseline": cell.baseline,
        "difference": None if found is None else found.mean,
        "difference_low": low,
        "difference_high": high,
        "pairs": None if found is None else found.pairs,
    }


def as_latex(table: BenchmarkTable) -> str:
    """Make a `tabular` for the booktabs package, with the notes below it."""
    groups = table.groups()
    layout = "l" + "".join("r" * (len(places) + 1) for _, places in groups)
    heads = " & ".join(
        ["", *(rf"\multicolumn{{{len(places) + 1}}}{{c}}{{{latex_text(group)}}}" for group, places in groups)]
    )
    titles = " & ".join(
        ["method", *(" & ".join([*(table.columns[place].title for place in places), "$n$"]) for _, places in groups)]
    )
    lines = [" & ".join([latex_text(row.label), *row_texts(table, row, latex_cell)]) for row in table.rows]
    parts = [
        rf"% {table.title}; needs \usepackage{{booktabs}}",
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        heads + r" \\",
        titles + r" \\",
        r"\midrule",
        *(line + r" \\" for line in lines),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par{{\footnotesize {latex_text(note)}}}" for note in table.notes),
    ]
    return "\n".join(parts).replace(MISSING, "--") + "\n"


def latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    own = own_score(cell).replace("±", r"$\pm$")
    paper = paper_and_gap(cell).replace("-", r"$-$").replace("+", r"$+$")
    return (rf"\textbf{{{own}}}" if cell.is_bold else own) + (rf" {{\scriptsize ({paper})}}" if paper else "")


def latex_text(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def as_terminal(table: BenchmarkTable) -> Group:
    """Make a small table per group of columns, as terminals are narrow. The paper's score stands below ours."""
    shown: list[Table | Text] = []
    for group, places in table.groups():
        part = Table(title=f"{table.title}: {group} (%)", title_justify="left")
        part.add_column("method")
        for title in [*(table.columns[place].title for place in places), "n"]:
            part.add_column(title, justify="right")
        for row in table.rows:
            cells = [terminal_cell(row.cells[place]) for place in places]
            part.add_row(Text(row.label), *cells, runs_of(row, places))
        shown.append(part)
    return Group(*shown, *map(Text, table.notes))


def terminal_cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text(MISSING)
    text = Text(own_score(cell), style="bold" if cell.is_bold else "")
    if paper := paper_and_gap(cell):
        text.append(f"\n({paper})", style="not bold dim")
    return text
