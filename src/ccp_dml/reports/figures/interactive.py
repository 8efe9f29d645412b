"""Draw panels for the browser: traces and a layout as Plotly reads them.

Colours are variables of the palette, such as `var(--s0)`; study.js replaces them by the colours of the reader's scheme,
light or dark.
"""

from collections.abc import Sequence
from typing import Any

from ccp_dml.reports.figures.figure import (
    MARGIN,
    Bars,
    HeatMap,
    Histogram,
    Lines,
    Panel,
    Points,
    Scatter,
    Surface,
    Symbol,
)
from ccp_dml.reports.figures.palette import COLOUR_MAP, dashes, variable

Trace = dict[str, Any]

SYMBOLS: dict[Symbol, str] = {"circle": "circle", "square": "square", "cross": "x-thin", "star": "star"}
MOST_WHOLE_TICKS = 10
ROOM_FOR_LEGEND = 48  # pixels below the axis: two rows, as on a phone


def plotly_panel(panel: Panel) -> dict[str, Any]:
    """Make `data` and `layout` for `Plotly.newPlot`."""
    layout = base_layout(panel)
    match panel:
        case Lines():
            traces = line_traces(panel)
            if panel.x_ticks is not None:
                texts = [f"{tick:g}" for tick in panel.x_ticks]
                layout["xaxis"] |= {"tickvals": list(panel.x_ticks), "ticktext": texts}
        case Bars():
            traces = bar_traces(panel)
            layout |= {"barmode": "group", "bargap": 0.15}
        case Histogram():
            traces = [histogram_trace(panel)]
            layout |= {"bargap": 0.15}
            if panel.highest() < MOST_WHOLE_TICKS:
                layout["yaxis"] |= {"dtick": 1}  # there are no halves of what is counted
        case HeatMap():
            traces = [heat_map_trace(panel)]
            layout["xaxis"] |= {"type": "category", "showgrid": False}
            layout["yaxis"] |= {"type": "category", "showgrid": False}
        case Scatter():
            traces = point_traces(panel.groups)
            if panel.equal_axes:
                layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
            for axis in ("xaxis", "yaxis"):
                layout[axis] |= {} if panel.limits is None else {"range": list(panel.limits)}
                layout[axis] |= {} if panel.has_ticks else {"showticklabels": False, "zeroline": False}
        case Surface():
            traces = [surface_trace(panel), *point_traces(panel.points)]
            layout["yaxis"] |= {"range": [panel.y[0] - MARGIN, panel.y[-1] + MARGIN]}
    if isinstance(panel, Lines | Scatter | Surface) and panel.log_x:
        layout["xaxis"] |= {"type": "log", "exponentformat": "power"}
    if sum(trace.get("showlegend", True) for trace in traces) > 1:
        layout["margin"]["b"] += ROOM_FOR_LEGEND
    return {"data": traces, "layout": layout}


def dash_of(style: int) -> str:
    return ",".join(f"{length}px" for length in dashes(style)) or "solid"


def base_layout(panel: Panel) -> dict[str, Any]:
    def axis(title: str) -> dict[str, Any]:
        return {
            "title": {"text": title},
            "gridcolor": "var(--line)",
            "zerolinecolor": "var(--line)",
            "linecolor": "var(--line)",
            "automargin": True,
        }

    return {
        "title": {"text": panel.title, "font": {"size": 15}, "x": 0, "xref": "paper", "yref": "container", "y": 0.97},
        "font": {"color": "var(--ink)", "family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 16, "t": 44 if panel.title else 16, "b": 48},
        "legend": {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
            "namelength": -1,
        },
        "xaxis": axis(panel.x_label),
        "yaxis": axis(panel.y_label),
    }


def line_traces(panel: Lines) -> list[Trace]:
    return [
        {
            "type": "scatter",
            "mode": "lines+markers" if panel.has_markers else "lines",
            "name": line.label,
            "x": list(line.x),
            "y": list(line.y),
            "line": {"color": variable(line.style), "width": 2, "dash": dash_of(line.style)},
            "marker": {"color": variable(line.style)},
            "error_y": error_bars(line.spread),
            "hovertemplate": "%{x:,g}: %{y:.2f}",
        }
        for line in panel.lines
    ]


def bar_traces(panel: Bars) -> list[Trace]:
    return [
        {
            "type": "bar",
            "name": group.label,
            "x": list(panel.categories),
            "y": list(group.values),
            "marker": {"color": variable(group.style, group.palette)},
            "error_y": error_bars(group.spread),
            "hovertemplate": "%{x}: %{y:.2f}",
        }
        for group in panel.groups
    ]


def histogram_trace(panel: Histogram) -> Trace:
    edges = panel.bin_edges()
    return {
        "type": "histogram",
        "x": list(panel.values),
        "xbins": {"start": edges[0], "end": edges[-1], "size": panel.bin_width},
        "autobinx": False,
        "marker": {"color": variable(panel.style)},
        "hovertemplate": "%{x}: %{y}<extra></extra>",
    }


def heat_map_trace(panel: HeatMap) -> Trace:
    return {
        "type": "heatmap",
        "x": list(panel.columns),
        "y": list(panel.rows),
        "z": [list(row) for row in panel.values],
        "colorscale": COLOUR_MAP.capitalize(),
        "colorbar": colour_bar(panel.value_label),
        "texttemplate": f"%{{z:.{panel.decimals}f}}",
        "hoverongaps": False,
        "hovertemplate": f"{panel.x_label} %{{x}}<br>{panel.y_label} %{{y}}<br>{panel.value_label} %{{z:.2f}}"
        "<extra></extra>",
    }


def surface_trace(panel: Surface) -> Trace:
    return {
        "type": "contour",
        "x": list(panel.x),
        "y": list(panel.y),
        "z": [list(row) for row in panel.values],
        "colorscale": COLOUR_MAP.capitalize(),
        "contours": {"coloring": "heatmap"},
        "line": {"width": 0.5},
        "colorbar": colour_bar(panel.value_label),
        "showlegend": False,
        "hovertemplate": f"{panel.x_label} %{{x:.3g}}<br>{panel.y_label} %{{y:.3g}}<br>{panel.value_label} %{{z:.2f}}"
        "<extra>interpolated</extra>",
    }


def point_traces(groups: Sequence[Points]) -> list[Trace]:
    traces = []
    for group in groups:
        own = variable(group.style, group.palette)
        outline = {"width": 1.5, "color": "var(--ink)"} if group.is_outlined else {"width": 1, "color": "var(--card)"}
        if group.symbol == "cross":  # nothing but an outline, which takes its own colour
            outline = {"width": 2, "color": own}
        marker = {"color": own, "symbol": SYMBOLS[group.symbol], "size": group.size * 1.3, "line": outline}
        trace: Trace = {
            "type": "scatter",
            "mode": "markers",
            "name": group.label,
            "x": list(group.x),
            "y": list(group.y),
            "marker": marker,
            # Names of classes would take half of a map's height: pointing at a mark tells its class.
            "showlegend": group.in_legend and group.palette == "series",
        }
        if group.texts is not None:
            trace |= {"text": list(group.texts), "hovertemplate": "%{text}"}
        traces.append(trace)
    return traces


def error_bars(spread: Sequence[float | None] | None) -> dict[str, Any]:
    if spread is None:
        return {"visible": False}
    return {"type": "data", "array": [value or 0.0 for value in spread], "visible": True}


def colour_bar(title: str) -> dict[str, Any]:
    return {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0}
