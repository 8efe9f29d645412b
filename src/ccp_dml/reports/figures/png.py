"""Figures by matplotlib, for papers and slides."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
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

COLOURS = ("#2457c5", "#c2410c", "#0f766e", "#9333ea", "#a16207", "#be185d", "#4b5563", "#15803d")
"""The line colours of report.css in its light scheme."""

CLASS_COLOURS = (
    *("#1f5fd0", "#d1470f", "#12805c", "#a02bd6", "#a67c00", "#d0246f"),
    *("#0a8aa6", "#6b4a2e", "#5b6472", "#6a9a00", "#b51f1f", "#4636b8"),
)
"""The colours of classes of map.css in its light scheme."""

MARKERS: dict[Symbol, str] = {"circle": "o", "square": "s", "cross": "x", "star": "*"}
PANEL_INCHES = (5.0, 3.9)
MOST_PANELS_PER_ROW = 3
MOST_UPRIGHT_LABELS = 5  # below a panel; more would run into each other
MAP_COLOURS = "viridis"


def write_png(path: Path, figure: Figure) -> Path:
    with atomic(path) as scratch:
        draw(figure).savefig(scratch, format="png", dpi=150)
    return path


def draw(figure: Figure) -> Canvas:
    columns = 2 if len(figure.panels) == 4 else min(len(figure.panels), MOST_PANELS_PER_ROW)
    rows = math.ceil(len(figure.panels) / columns)
    canvas = Canvas(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), layout="constrained")
    canvas.suptitle(figure.title, fontsize=11)
    places = canvas.subplots(rows, columns, squeeze=False).flatten()
    share_legend = all(isinstance(panel, Scatter) for panel in figure.panels)
    for axis, panel in zip(places, figure.panels, strict=False):
        draw_panel(axis, panel, has_legend=not share_legend)
    if share_legend:
        draw_shared_legend(canvas)
    for axis in places[len(figure.panels) :]:
        axis.set_axis_off()
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


def draw_shared_legend(canvas: Canvas) -> None:
    """Below panels of the same points, each name once."""
    named = {name: mark for axis in canvas.axes for mark, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    if len(named) > 1:
        inches = 0.5 + 0.07 * max(map(len, named))  # of a mark and its name in this size
        columns = max(1, min(len(named), int(canvas.get_figwidth() / inches)))
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "fontsize": 8, "frameon": False}
        canvas.legend(list(named.values()), list(named), **place)


def draw_lines(axis: Axes, panel: Lines) -> None:
    for line in panel.lines:
        marker = "o" if panel.has_markers else None
        style: dict[str, Any] = {"color": colour(line.style), "label": line.label, "marker": marker, "markersize": 4}
        axis.errorbar(line.x, line.y, yerr=line.spread, capsize=3, **style)
    if panel.x_ticks is not None:
        axis.set_xticks(panel.x_ticks, [f"{tick:g}" for tick in panel.x_ticks])


def draw_bars(axis: Axes, panel: Bars) -> None:
    width = 0.8 / len(panel.groups)
    for place, group in enumerate(panel.groups):
        shift = (place - (len(panel.groups) - 1) / 2) * width
        spread = [value or 0.0 for value in group.spread] if group.spread is not None else None
        heights = [math.nan if value is None else value for value in group.values]
        places = [index + shift for index in range(len(heights))]
        axis.bar(places, heights, 0.92 * width, yerr=spread, capsize=3, color=colour(group.style), label=group.label)
    tilt: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(panel.categories) > MOST_UPRIGHT_LABELS else {}
    axis.set_xticks(range(len(panel.categories)), list(panel.categories), **tilt)


def draw_histogram(axis: Axes, panel: Histogram) -> None:
    samples = panel.samples
    axis.hist(
        [list(sample.values) for sample in samples],
        bins=panel.bin_edges(),
        color=[colour(sample.style) for sample in samples],
        label=[sample.label for sample in samples],
    )
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))


def draw_heat_map(axis: Axes, panel: HeatMap) -> None:
    cells = [[math.nan if value is None else value for value in row] for row in panel.values]
    image = axis.imshow(cells, origin="lower", cmap=MAP_COLOURS, aspect="auto")
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
        colours = COLOURS if group.palette == "series" else CLASS_COLOURS
        axis.scatter(
            group.x,
            group.y,
            s=group.size**2,
            marker=MARKERS[group.symbol],
            color=colours[group.style % len(colours)],
            edgecolors=edge,
            linewidths=1.5 if group.symbol == "cross" else 0.7 if group.is_outlined else 0.3,
            label=group.label if group.in_legend else None,
            zorder=3,
        )


def draw_surface(axis: Axes, panel: Surface) -> None:
    filled = axis.contourf(panel.x, panel.y, panel.values, levels=12, cmap=MAP_COLOURS)
    axis.figure.colorbar(filled, ax=axis, label=panel.value_label)
    draw_points(axis, panel.points)
    axis.set_ylim(panel.y[0] - MARGIN, panel.y[-1] + MARGIN)


def colour(style: int) -> str:
    return COLOURS[style % len(COLOURS)]
