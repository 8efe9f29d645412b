"""The paper's figure of relative improvements: what proxies, XBM and CCP each add to a plain loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccp_dml.benchmark.table import MARKED
from ccp_dml.config.recipes import CCP, PROXY, SMALL_CCP, XBM
from ccp_dml.foundation.files import atomic
from ccp_dml.records import layout
from ccp_dml.records.benchmark_table import BenchmarkTable

METRIC = "map_at_r"
BASES = ("c1", "c2", "ms", "triplet")
VARIANTS = {PROXY: "proxy", XBM: "XBM", SMALL_CCP: "CCP (small)", CCP: "CCP"}
COLOURS = {PROXY: "#8c8c8c", XBM: "#d98c21", SMALL_CCP: "#7fb3d9", CCP: "#1f6fb2"}
PAPER = "paper"
MAX_BAR_WIDTH = 0.3  # of the space that a loss has
FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Improvement:
    """By how much a variant of a loss beats the plain loss, as a share of the plain loss's score."""

    base: str
    variant: str  # a key of VARIANTS
    ours: float
    paper: float | None


def improvements(table: BenchmarkTable, place: int) -> list[Improvement]:
    """What the column at `place` says about each variant whose plain loss is in the table, too."""
    cells = {row.method: row.cells[place] for row in table.rows}
    found = []
    for base in BASES:
        for variant in VARIANTS:
            plain, better = cells.get(base), cells.get(base + variant)
            if plain is None or better is None or plain.score.mean == 0:
                continue
            paper = better.paper / plain.paper - 1 if better.paper is not None and plain.paper else None
            found.append(Improvement(base, variant, better.score.mean / plain.score.mean - 1, paper))
    return found


def write_figure(folder: Path, table: BenchmarkTable) -> list[Path]:
    """`improvement.png` and `improvement.svg`; nothing where no loss stands beside a variant of itself."""
    places = [place for place, column in enumerate(table.columns) if column.metric == METRIC]
    panels = [(table.columns[place].group, improvements(table, place)) for place in places]
    panels = [(title, found) for title, found in panels if found]
    if not panels:
        return []
    with matplotlib.rc_context({"svg.hashsalt": "ccp", "font.size": 10}):
        figure = draw(panels, table)
        files = [folder / layout.IMPROVEMENT_PNG, folder / layout.IMPROVEMENT_SVG]
        for file, ending in zip(files, FORMATS, strict=True):
            with atomic(file) as scratch:
                metadata = {"Date": None} if ending == "svg" else None  # the same results, the same file
                figure.savefig(scratch, format=ending, dpi=150, metadata=metadata)
    return files


def draw(panels: Sequence[tuple[str, list[Improvement]]], table: BenchmarkTable) -> Figure:
    figure = Figure(figsize=(5.2 * len(panels), 3.8), layout="constrained")
    figure.suptitle(f"MAP@R over the plain loss: {table.title}", fontsize=11)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, found) in zip(axes, panels, strict=True):
        draw_panel(axis, title, found)
    axes[0].set_ylabel("relative improvement (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    labels = [label for label in (*VARIANTS.values(), PAPER) if label in handles]
    figure.legend(
        [handles[label] for label in labels], labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    if any(row.is_marked for row in table.rows):
        figure.text(0.99, 0.01, MARKED.removeprefix("* "), ha="right", fontsize=8)
    return figure


def draw_panel(axis: Axes, title: str, found: Sequence[Improvement]) -> None:
    """Bars side by side for each loss; a diamond is what the paper reports."""
    bases = [base for base in BASES if any(one.base == base for one in found)]
    present = [variant for variant in VARIANTS if any(one.variant == variant for one in found)]
    width = min(0.8 / len(present), MAX_BAR_WIDTH)
    for one in found:
        place = bases.index(one.base) + (present.index(one.variant) - (len(present) - 1) / 2) * width
        bar = axis.bar(place, 100 * one.ours, 0.92 * width, color=COLOURS[one.variant], label=VARIANTS[one.variant])
        axis.bar_label(bar, fmt="%+.1f", fontsize=7, padding=2)
        if one.paper is not None:
            axis.plot(place, 100 * one.paper, "D", color="black", markerfacecolor="white", markersize=5, label=PAPER)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.margins(y=0.15)
    axis.set_xlim(-0.5, len(bases) - 0.5)
    axis.set_xticks(range(len(bases)), [base.upper() if len(base) == 2 else base.capitalize() for base in bases])
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
