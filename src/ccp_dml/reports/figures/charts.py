"""Line charts as geometry: where lines, ticks and marks stand, in percent of the plot. `chart.html` draws them.

Percentages instead of pixels let text keep its size while the lines stretch with the page, on a phone as on paper.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Scale = Callable[[float], float]  # a value to its place in percent

STYLES = 8  # how many line styles report.css knows; further series repeat them
MOST_POINTS = 400  # per line; more cannot be told apart on a screen
MOST_TICK_DECIMALS = 6  # smaller values are written as 2e-09


@dataclass(frozen=True)
class Series:
    """One line. `style` picks colour and dashes, and stays the same for a run through all charts."""

    label: str
    points: Sequence[tuple[float, float]]
    style: int = 0


@dataclass(frozen=True)
class Mark:
    """A vertical line, such as where a new problem starts."""

    x: float
    label: str
    style: int | None = None  # the series that it belongs to; None: all of them


@dataclass(frozen=True)
class Highlight:
    """One point of a series worth a name, such as the best evaluation."""

    x: float
    y: float
    label: str
    style: int = 0


@dataclass(frozen=True)
class Chart:
    """What to draw. `decimals` of the values; with `percent` they are fractions and shown times 100."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    marks_label: str = ""
    highlights: Sequence[Highlight] = ()
    notes: Mapping[float, str] = field(default_factory=dict)  # a word on some x, shown with its values
    percent: bool = False
    decimals: int = 1


@dataclass(frozen=True)
class Tick:
    at: float  # percent of the plot
    text: str


@dataclass(frozen=True)
class DrawnPoint:
    left: float
    bottom: float
    text: str
    style: int | None


@dataclass(frozen=True)
class TableRow:
    """All values at one x: what the tooltip says, and a line of the table below the chart."""

    left: float
    text: str
    points: list[DrawnPoint | None]  # one per series


@dataclass(frozen=True)
class DrawnChart:
    chart: Chart
    lines: list[str]  # one per series, as SVG polyline points in a 100 x 100 box with y downwards
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    marks: list[DrawnPoint]  # text is empty where labels would run into each other
    highlights: list[DrawnPoint]
    rows: list[TableRow] = field(repr=False)


def draw(chart: Chart) -> DrawnChart | None:
    """The chart's geometry; None where no series has a point."""
    series = [Series(line.label, _thinned(line.points), line.style) for line in chart.series]
    points = [point for line in series for point in line.points] + [(spot.x, spot.y) for spot in chart.highlights]
    if not points:
        return None
    x_ticks = nice_ticks(min(x for x, _ in points), max(x for x, _ in points), whole=True)
    y_ticks = nice_ticks(_floor([y for _, y in points]), max(y for _, y in points))
    left = _scale(min(x for x, _ in points), max(x for x, _ in points))
    bottom = _scale(y_ticks[0], y_ticks[-1])

    def value_text(value: float) -> str:
        return f"{100 * value:.{chart.decimals}f}" if chart.percent else f"{value:.{chart.decimals}f}"

    step = y_ticks[1] - y_ticks[0]
    tick_decimals = max(0, -math.floor(math.log10(step * (100 if chart.percent else 1)) + 1e-9))

    def tick_text(value: float) -> str:
        shown = value * (100 if chart.percent else 1)
        return f"{shown:.{tick_decimals}f}" if tick_decimals <= MOST_TICK_DECIMALS else f"{shown:.3g}"

    rows = []
    by_x = [dict(line.points) for line in series]
    for x in sorted({x for values in by_x for x in values}):
        spots = [
            DrawnPoint(left(x), bottom(values[x]), value_text(values[x]), line.style) if x in values else None
            for line, values in zip(series, by_x, strict=True)
        ]
        note = f" ({chart.notes[x]})" if x in chart.notes else ""
        rows.append(TableRow(left(x), f"{x:,.0f}{note}", spots))
    return DrawnChart(
        chart=chart,
        lines=[" ".join(f"{left(x)},{round(100 - bottom(y), 2)}" for x, y in line.points) for line in series],
        x_ticks=[Tick(left(x), f"{x:,.0f}") for x in x_ticks if 0 <= left(x) <= 100],
        y_ticks=[Tick(bottom(y), tick_text(y)) for y in y_ticks],
        marks=_drawn_marks([mark for mark in chart.marks if 0 <= left(mark.x) <= 100], left),
        highlights=[DrawnPoint(left(spot.x), bottom(spot.y), spot.label, spot.style) for spot in chart.highlights],
        rows=rows,
    )


def nice_ticks(low: float, high: float, count: int = 5, whole: bool = False) -> list[float]:
    """About `count` round values (1, 2 or 5 times a power of ten apart) from at most `low` to at least `high`."""
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = (low - pad, high + pad) if not whole else (low, low + 1)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 3 - math.floor(math.log10(step)))  # counted from the step: there are pulls of 1e-14
    return [round(index * step, digits) for index in range(first, last + 1)]


def _floor(values: Sequence[float]) -> float:
    """Zero where that wastes little of the plot, otherwise the smallest value."""
    low, high = min(values), max(values)
    return 0.0 if 0 <= low < 0.4 * high else low


def _scale(low: float, high: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: round(100 * (value - low) / span, 2)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Every n-th point, counted from the last, so that no line is longer than MOST_POINTS."""
    stride = math.ceil(len(points) / MOST_POINTS) if points else 1
    return list(points[::-1][::stride][::-1])


def _drawn_marks(marks: Sequence[Mark], left: Scale) -> list[DrawnPoint]:
    drawn: list[DrawnPoint] = []
    last_labelled = -math.inf
    for mark in sorted(marks, key=lambda mark: mark.x):
        has_room = left(mark.x) - last_labelled >= 6
        last_labelled = left(mark.x) if has_room else last_labelled
        drawn.append(DrawnPoint(left(mark.x), 100, mark.label if has_room else "", mark.style))
    return drawn
