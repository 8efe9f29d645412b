"""Draw the paper's figure of relative improvements: what proxies, XBM, CCP and PROFS each add to a plain loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ccp_dml.config.recipes import CCP, PROFS, PROXY, SMALL_CCP, XBM
from ccp_dml.evaluation import SCORE_TITLES
from ccp_dml.records import layout
from ccp_dml.records.benchmark_table import BenchmarkTable
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure
from ccp_dml.reports.figures.picture import write_picture
from ccp_dml.reports.words import SELECTED_ON_TEST

METRIC = "map_at_r"
BASES = ("c1", "c2", "ms", "triplet")
VARIANTS = {PROXY: "proxy", XBM: "XBM", SMALL_CCP: "CCP (small)", CCP: "CCP", PROFS: "PROFS"}
PAPER = "paper"


@dataclass(frozen=True)
class Improvement:
    """By how much a variant of a loss beats the plain loss, as a share of the plain loss's score."""

    base: str
    variant: str  # a key of VARIANTS
    ours: float
    paper: float | None


def improvements(table: BenchmarkTable, place: int) -> list[Improvement]:
    """Compare each variant with its plain loss by the column at `place`, where the table has both.

    The gain is that of pairs of runs: a run that one of the two lacks must not look like a gain of the other.
    """
    cells = {row.method: row.cells[place] for row in table.rows}
    found = []
    for base in BASES:
        for variant in VARIANTS:
            plain, better = cells.get(base), cells.get(base + variant)
            if plain is None or better is None or (gain := better.difference) is None:
                continue
            before = plain.score.mean if plain.score.n == gain.pairs else better.score.mean - gain.mean  # of the pairs
            paper = better.paper / plain.paper - 1 if better.paper is not None and plain.paper else None
            if before > 0:
                found.append(Improvement(base, variant, gain.mean / before, paper))
    return found


def write_figure(folder: Path, table: BenchmarkTable) -> list[Path]:
    """Draw the figure as PNG and SVG; nothing where no loss stands beside a variant of itself."""
    figure = improvement_figure(table)
    if figure is None:
        return []
    return [write_picture(folder / name, figure) for name in (layout.IMPROVEMENT_PNG, layout.IMPROVEMENT_SVG)]


def improvement_figure(table: BenchmarkTable) -> Figure | None:
    """Describe the figure: a panel per group of columns; None where there is nothing to compare."""
    places = [place for place, column in enumerate(table.columns) if column.metric == METRIC]
    found = {table.columns[place].group: improvements(table, place) for place in places}
    panels = [improvement_panel(title, values) for title, values in found.items() if values]
    if not panels:
        return None
    note = SELECTED_ON_TEST.removeprefix("* ") if any(row.is_marked for row in table.rows) else ""
    title = f"{SCORE_TITLES[METRIC]} over the plain loss: {table.title}"
    return Figure("improvement", title, "", panels, is_aligned=True, note=note)


def improvement_panel(title: str, found: Sequence[Improvement]) -> Bars:
    """Put the variants of each loss side by side; the reference on a bar is what the paper reports."""
    bases = [base for base in BASES if any(one.base == base for one in found)]
    groups = []
    for style, (variant, label) in enumerate(VARIANTS.items()):
        own = {one.base: one for one in found if one.variant == variant}
        if own:
            ours = [100 * own[base].ours if base in own else None for base in bases]
            theirs = [_percent(own[base].paper) if base in own else None for base in bases]
            groups.append(BarGroup(label, ours, style, palette="variants", references=theirs))
    names = [base.upper() if len(base) == 2 else base.capitalize() for base in bases]
    return Bars(title, "", "relative improvement (%)", names, groups, reference_label=PAPER, has_values=True)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
