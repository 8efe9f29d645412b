"""Describe a chart of a report, and find where its lines, ticks and marks stand, in percent of the plot.

`chart.html` draws it as light HTML and SVG. Percentages instead of pixels let text keep its size while the lines
stretch with the page, on a phone as on paper. Values are in the unit that is shown.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ccp_dml.reports.words import readable

Scale = Callable[[float], float]  # a value to its place in percent

MOST_POINTS = 400  # per curve; more cannot be told apart on a screen
ABOUT_TICKS = 5
MOST_TICK_DECIMALS = 6  # smaller values are written as 2e-09
EQUAL = 1e-9  # values that are no further apart, in relation to their size, differ by rounding
ROOM_FOR_LABEL = 6  # percent of the plot between two labelled marks


@dataclass(frozen=True)
class Curve:
    """Points (x, y) joined by a line. `style` picks the colour, and stays the same for a run through all charts."""

    label: str
    points: Sequence[tuple[float, float]]
    style: int = 0


def curves_of(points: Mapping[str, Sequence[tuple[float, float]]]) -> list[Curve]:
    """Make a curve per name that has points; the place among the names picks the style."""
    return [Curve(label, own, style) for style, (label, own) in enumerate(points.items()) if own]


@dataclass(frozen=True)
class Mark:
    """A vertical line where a new problem starts."""

    x: float
    label: str
    style: int | None = None  # the curve that it belongs to; None: all of them


@dataclass(frozen=True)
class Highlight:
    """One point of a curve worth a name, such as the best evaluation."""

    x: float
    y: float
    label: str
    style: int = 0


@dataclass(frozen=True)
class Chart:
    """Curves over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    decimals: int | None  # of the values; None: as many as the size of each asks for
    log_x: bool = False
    log_y: bool = False
    y_limits: tuple[float, float] | None = None  # None: as the values ask
    marks: Sequence[Mark] = ()
    highlights: Sequence[Highlight] = ()
    notes: Mapping[float, str] = field(default_factory=dict)  # a word on some x, shown with its values


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
class ChartRow:
    """All values at one x: what the tooltip says, and a line of the table below the chart."""

    left: float
    text: str
    points: list[DrawnPoint | None]  # one per curve


@dataclass(frozen=True)
class DrawnChart:
    """The geometry of a chart."""

    chart: Chart
    lines: list[str]  # one per curve, as SVG polyline points in a 100 x 100 box with y downwards
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    marks: list[DrawnPoint]  # text is empty where labels would run into each other
    highlights: list[DrawnPoint]
    rows: list[ChartRow] = field(repr=False)


@dataclass(frozen=True)
class Axis:
    """Places on one axis, and the text of its values."""

    place: Scale
    ticks: list[Tick]
    text: Callable[[float], str]


def draw(chart: Chart) -> DrawnChart | None:
    """Find the places of everything in `chart`; None where no curve has a point."""
    curves = [_thinned(curve.points) for curve in chart.curves]
    points = [point for curve in curves for point in curve] + [(spot.x, spot.y) for spot in chart.highlights]
    if not points:
        return None
    x, y = _x_axis(chart, [x for x, _ in points]), _y_axis(chart, [y for _, y in points])
    by_x = [dict(curve) for curve in curves]
    rows = []
    for at in sorted({at for values in by_x for at in values}):
        spots = [
            DrawnPoint(x.place(at), y.place(values[at]), y.text(values[at]), curve.style) if at in values else None
            for curve, values in zip(chart.curves, by_x, strict=True)
        ]
        note = f" ({chart.notes[at]})" if at in chart.notes else ""
        rows.append(ChartRow(x.place(at), f"{x.text(at)}{note}", spots))
    return DrawnChart(
        chart=chart,
        lines=[" ".join(f"{x.place(a)},{round(100 - y.place(b), 2)}" for a, b in curve) for curve in curves],
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        marks=_drawn_marks([mark for mark in chart.marks if 0 <= x.place(mark.x) <= 100], x.place),
        highlights=[DrawnPoint(x.place(spot.x), y.place(spot.y), spot.label, spot.style) for spot in chart.highlights],
        rows=rows,
    )


def draw_all(charts: Iterable[Chart]) -> list[DrawnChart]:
    """Draw the charts that have a point to show."""
    return [drawn for chart in charts if (drawn := draw(chart)) is not None]


def _x_axis(chart: Chart, values: Sequence[float]) -> Axis:
    if chart.log_x:
        return _logarithmic(values)
    place, ticks = _linear(min(values), max(values)), nice_ticks(min(values), max(values), whole=True)

    def text(value: float) -> str:
        return f"{value:,.0f}"

    return Axis(place, [Tick(place(x), text(x)) for x in ticks if 0 <= place(x) <= 100], text)


def _y_axis(chart: Chart, values: Sequence[float]) -> Axis:
    if chart.log_y:
        return _logarithmic(values)
    low, high = chart.y_limits or (_floor(values), max(values))
    ticks = nice_ticks(low, high)
    place = _linear(ticks[0], ticks[-1])
    decimals = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))

    def tick_text(value: float) -> str:
        return f"{value:.{decimals}f}" if decimals <= MOST_TICK_DECIMALS else f"{value:.3g}"

    def text(value: float) -> str:
        return readable(value) if chart.decimals is None else f"{value:.{chart.decimals}f}"

    return Axis(place, [Tick(place(y), tick_text(y)) for y in ticks], text)


def _logarithmic(values: Sequence[float]) -> Axis:
    """Place `values` between powers of ten, with a tick at every power."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    place = _linear(low, max(high, low + 1))
    powers = [10.0**power for power in range(low, max(high, low + 1) + 1)]
    ticks = [Tick(place(math.log10(power)), readable(power)) for power in powers]
    return Axis(lambda value: place(math.log10(value)), ticks, readable)


def nice_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """List about five round values (1, 2 or 5 times a power of ten apart) from at most `low` to at least `high`."""
    if high - low <= EQUAL * max(abs(low), abs(high)):  # ticks between them would be one number, too
        pad = abs(low) * 0.1 or 1.0
        low, high = (low - pad, high + pad) if not whole else (low, low + 1)
    rough = (high - low) / ABOUT_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 3 - math.floor(math.log10(step)))  # counted from the step: there are pulls of 1e-14
    return [round(index * step, digits) for index in range(first, last + 1)]


def _floor(values: Sequence[float]) -> float:
    """Start the axis at zero where that wastes little of the plot, otherwise at the smallest value."""
    low, high = min(values), max(values)
    return 0.0 if 0 <= low < 0.4 * high else low


def _linear(low: float, high: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: round(100 * (value - low) / span, 2)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Keep every n-th point, counted from the last, so that no curve has more than MOST_POINTS."""
    stride = math.ceil(len(points) / MOST_POINTS) if points else 1
    return points[::-1][::stride][::-1]


def _drawn_marks(marks: Sequence[Mark], place: Scale) -> list[DrawnPoint]:
    drawn: list[DrawnPoint] = []
    last_labelled = -math.inf
    for mark in sorted(marks, key=lambda mark: mark.x):
        has_room = place(mark.x) - last_labelled >= ROOM_FOR_LABEL
        last_labelled = place(mark.x) if has_room else last_labelled
        drawn.append(DrawnPoint(place(mark.x), 100, mark.label if has_room else "", mark.style))
    return drawn
