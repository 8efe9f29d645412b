"""Draw figures with matplotlib, for papers and slides."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ccp_dml.foundation.files import atomic
from ccp_dml.reports.figures.figure import (
    MARGIN,
    Bars,
    Figure,
    HeatMap,
    Histogram,
    Lines,
    Panel,
    Points,
    Scatter,
    Surface,
    Symbol,
)
from ccp_dml.reports.figures.palette import COLOUR_MAP, DARK, LIGHT, PAGE_DARK, dashes, light

MARKERS: dict[Symbol, str] = {"circle": "o", "square": "s", "cross": "x", "star": "*"}
PANEL_INCHES = (5.0, 3.9)
MOST_PANELS_PER_ROW = 3
MAX_BAR_WIDTH = 0.4  # of the space that a category has
MOST_UPRIGHT_LABELS = 5  # below a panel; more would run into each other


def write_picture(path: Path, figure: Figure) -> Path:
    """Draw `figure` into a file, PNG or SVG by its ending; the same figure gives the same file. Return its path.

    An SVG is drawn on white, and on dark where the reader's screen is dark.
    """
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "ccp"}), atomic(path) as scratch:
        draw(figure).savefig(scratch, format=kind, dpi=150, metadata=metadata)
        if kind == "svg":
            drawn = scratch.read_text(encoding="utf-8")
            scratch.write_text(drawn.replace("</style>", f"{dark_scheme()}</style>", 1), encoding="utf-8")
    return path


def dark_scheme() -> str:
    """Write the style rules that give a drawing the dark colours of pages: matplotlib writes colours on each mark."""
    paper, ink = PAGE_DARK["card"], PAGE_DARK["ink"]
    rules = [f"svg {{ fill: {ink}; }}"]  # letters have no colour of their own
    own = {"#ffffff": paper, "#000000": ink}
    own |= {one: dark for name in LIGHT for one, dark in zip(LIGHT[name], DARK[name], strict=True)}
    for one, dark in own.items():
        rules += [f'[style*="{part}: {one}"] {{ {part}: {dark} !important; }}' for part in ("fill", "stroke")]
    return f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def draw(figure: Figure) -> Canvas:
    """Draw `figure` on a canvas: at most three panels in a row, four as a square."""
    columns = 2 if len(figure.panels) == 4 else min(len(figure.panels), MOST_PANELS_PER_ROW)
    rows = math.ceil(len(figure.panels) / columns)
    canvas = Canvas(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), layout="constrained")
    canvas.suptitle(as_name(figure.title), fontsize=11)
    places = canvas.subplots(rows, columns, squeeze=False, sharey=figure.is_aligned).flatten()
    share_legend = figure.is_aligned or all(isinstance(panel, Scatter) for panel in figure.panels)
    for axis, panel in zip(places, figure.panels, strict=False):
        draw_panel(axis, panel, has_legend=not share_legend)
    if figure.is_aligned:
        for axis in places:
            axis.label_outer(remove_inner_ticks=False)
    if share_legend:
        draw_shared_legend(canvas, fewest=1 if figure.is_aligned else 2)
    for axis in places[len(figure.panels) :]:
        axis.set_axis_off()
    if figure.note:
        canvas.text(0.99, 0.01, figure.note, ha="right", fontsize=8)
    return canvas


def draw_panel(axis: Axes, panel: Panel, has_legend: bool) -> None:
    match panel:
        case Lines():
            draw_lines(axis, panel)
        case Bars():
            draw_bars(axis, panel)
        case Histogram():
            draw_histogram(axis, panel)
        case HeatMap():
            draw_heat_map(axis, panel)
        case Scatter():
            draw_scatter(axis, panel)
        case Surface():
            draw_surface(axis, panel)
    if isinstance(panel, Lines | Scatter | Surface) and panel.log_x:
        axis.set_xscale("log")
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.spines[["top", "right"]].set_visible(False)
    if has_legend and len(axis.get_legend_handles_labels()[1]) > 1:
        # Bars and points fill their panels: there, only a place beside them is free.
        beside: dict[str, Any] = (
            {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if isinstance(panel, Bars | Scatter) else {}
        )
        axis.legend(fontsize=8, frameon=isinstance(panel, Surface), **beside)


def draw_shared_legend(canvas: Canvas, fewest: int) -> None:
    """Draw one legend below all panels, each name once and references last, if there are at least `fewest` names."""
    named = {name: mark for axis in canvas.axes for mark, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    named = dict(sorted(named.items(), key=lambda item: isinstance(item[1], Line2D)))
    if len(named) >= fewest:
        inches = 0.5 + 0.07 * max(map(len, named))  # of a mark and its name in this size
        columns = max(1, min(len(named), int(canvas.get_figwidth() / inches)))
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "fontsize": 8, "frameon": False}
        canvas.legend(list(named.values()), list(named), **place)


def draw_lines(axis: Axes, panel: Lines) -> None:
    for line in panel.lines:
        marker = "o" if panel.has_markers else None
        style: dict[str, Any] = {"color": light(line.style), "label": line.label, "marker": marker, "markersize": 4}
        axis.errorbar(line.x, line.y, yerr=line.spread, capsize=3, linestyle=(0, dashes(line.style)), **style)
    if panel.x_ticks is not None:
        axis.set_xticks(panel.x_ticks, [f"{tick:g}" for tick in panel.x_ticks])


def draw_bars(axis: Axes, panel: Bars) -> None:
    width = min(0.8 / len(panel.groups), MAX_BAR_WIDTH)
    named_reference = False
    for place, group in enumerate(panel.groups):
        shift = (place - (len(panel.groups) - 1) / 2) * width
        spread = [value or 0.0 for value in group.spread] if group.spread is not None else None
        heights = [math.nan if value is None else value for value in group.values]
        places = [index + shift for index in range(len(heights))]
        own = light(group.style, group.palette)
        bars = axis.bar(places, heights, 0.92 * width, yerr=spread, capsize=3, color=own, label=group.label)
        if panel.has_values:
            axis.bar_label(bars, fmt="%+.1f", fontsize=7, padding=2)
        for at, reference in zip(places, group.references or (), strict=False):
            if reference is not None:
                label = None if named_reference else panel.reference_label
                axis.plot(at, reference, "D", color="black", markerfacecolor="white", markersize=5, label=label)
                named_reference = True
    if panel.has_values:
        axis.axhline(0, color="black", linewidth=0.8)
        axis.use_sticky_edges = axis.dataLim.ymax > 0  # else no room would be left above zero for the values there
        axis.margins(y=0.15)
    axis.set_xlim(-0.5, len(panel.categories) - 0.5)
    tilt: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(panel.categories) > MOST_UPRIGHT_LABELS else {}
    axis.set_xticks(range(len(panel.categories)), list(panel.categories), **tilt)


def draw_histogram(axis: Axes, panel: Histogram) -> None:
    axis.hist(list(panel.values), bins=panel.bin_edges(), color=light(panel.style))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))


def draw_heat_map(axis: Axes, panel: HeatMap) -> None:
    cells = [[math.nan if value is None else value for value in row] for row in panel.values]
    image = axis.imshow(cells, origin="lower", cmap=COLOUR_MAP, aspect="auto")
    known = [value for row in cells for value in row if not math.isnan(value)]
    middle = (min(known) + max(known)) / 2
    for place, row in enumerate(cells):
        for column, value in enumerate(row):
            if not math.isnan(value):
                ink = "white" if value <= middle else "black"
                axis.text(column, place, f"{value:.{panel.decimals}f}", ha="center", va="center", color=ink, fontsize=9)
    axis.set_xticks(range(len(panel.columns)), list(panel.columns))
    axis.set_yticks(range(len(panel.rows)), list(panel.rows))
    axis.figure.colorbar(image, ax=axis, label=panel.value_label)


def draw_scatter(axis: Axes, panel: Scatter) -> None:
    draw_points(axis, panel.groups)
    if panel.limits is not None:
        axis.set(xlim=panel.limits, ylim=panel.limits)
    if panel.equal_axes:
        axis.set_aspect("equal", adjustable="datalim" if panel.limits is None else "box")
    if not panel.has_ticks:
        axis.set(xticks=[], yticks=[])


def draw_points(axis: Axes, groups: Sequence[Points]) -> None:
    for group in groups:
        edge = None if group.symbol == "cross" else "black" if group.is_outlined else "white"
        axis.scatter(
            group.x,
            group.y,
            s=group.size**2,
            marker=MARKERS[group.symbol],
            color=light(group.style, group.palette),
            edgecolors=edge,
            linewidths=1.5 if group.symbol == "cross" else 0.7 if group.is_outlined else 0.3,
            label=as_name(group.label) if group.in_legend else None,
            zorder=3,
        )


def as_name(text: str) -> str:
    """Write a name so that matplotlib shows it: dollars begin no formula, and a leading underscore hides nothing."""
    shown = text.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def draw_surface(axis: Axes, panel: Surface) -> None:
    filled = axis.contourf(panel.x, panel.y, panel.values, levels=12, cmap=COLOUR_MAP)
    axis.figure.colorbar(filled, ax=axis, label=panel.value_label)
    draw_points(axis, panel.points)
    axis.set_ylim(panel.y[0] - MARGIN, panel.y[-1] + MARGIN)
