"""Describe figures once, as plain values, for two renderers.

`interactive` draws a panel with Plotly, and `picture` a whole figure with matplotlib. Values are in the unit that is
shown: percentages are 0..100. (The charts of reports are lighter, and described in `page_chart`.)
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ccp_dml.reports.figures.palette import Palette

Symbol = Literal["circle", "square", "cross", "star"]


@dataclass(frozen=True)
class Line:
    """Points joined by a line. `style` picks the colour, and stays the same for a method through all figures."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: int = 0
    spread: Sequence[float] | None = None  # an error bar reaches so far up and down


@dataclass(frozen=True)
class Lines:
    """Lines over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_ticks: Sequence[float] | None = None  # the only ticks, where only some x are possible; None: round values
    log_x: bool = False
    has_markers: bool = False


@dataclass(frozen=True)
class BarGroup:
    """A bar per category; None leaves a gap."""

    label: str
    values: Sequence[float | None]
    style: int = 0
    spread: Sequence[float | None] | None = None
    palette: Palette = "series"
    references: Sequence[float | None] | None = None  # another value to compare each bar with, marked on pictures


@dataclass(frozen=True)
class Bars:
    """Bars of several groups, side by side for each category."""

    title: str
    x_label: str
    y_label: str
    categories: Sequence[str]
    groups: Sequence[BarGroup]
    reference_label: str = ""  # what the references of all groups are
    has_values: bool = False  # on pictures the value stands on each bar, with its sign


@dataclass(frozen=True)
class Histogram:
    """How often values fall into bins of `bin_width`."""

    title: str
    x_label: str
    y_label: str
    values: Sequence[float]
    bin_width: float
    style: int = 0

    def bin_edges(self) -> list[float]:
        """List whole multiples of the bin width around all values."""
        first = math.floor(min(self.values) / self.bin_width)
        last = math.floor(max(self.values) / self.bin_width) + 1
        return [self.bin_width * place for place in range(first, last + 1)]

    def highest(self) -> int:
        """Count the values in the fullest bin."""
        return max(Counter(math.floor(value / self.bin_width) for value in self.values).values())


@dataclass(frozen=True)
class HeatMap:
    """A value per cell of a grid, `values[row][column]`, rows from below; None leaves a cell empty."""

    title: str
    x_label: str
    y_label: str
    value_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]
    decimals: int = 1


@dataclass(frozen=True)
class Points:
    """Marks of one kind; `texts` are shown when a reader points at them."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: int = 0
    symbol: Symbol = "circle"
    size: float = 7.0
    texts: Sequence[str] | None = None
    palette: Palette = "series"
    is_outlined: bool = False  # in the text's colour, to stand out among smaller marks
    in_legend: bool = True


@dataclass(frozen=True)
class Scatter:
    """Points over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    groups: Sequence[Points]
    log_x: bool = False
    equal_axes: bool = False  # distances in the plane mean something, as in a 2-D embedding
    limits: tuple[float, float] | None = None  # of both axes, the same for panels to compare; None: as the points ask
    has_ticks: bool = True  # False: the places on the axes mean nothing, as in t-SNE


@dataclass(frozen=True)
class Surface:
    """A smooth function of two values, `values[row][column]` at `y[row]` and `x[column]`, and the points behind it."""

    title: str
    x_label: str
    y_label: str
    value_label: str
    x: Sequence[float]
    y: Sequence[float]
    values: Sequence[Sequence[float]]
    points: Sequence[Points]
    log_x: bool = False


MARGIN = 0.5
"""Room beyond the lowest and highest y of a surface, so that points at its edge are seen whole."""

Panel = Lines | Bars | Histogram | HeatMap | Scatter | Surface


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one caption; `name` is its file's, without the ending."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    is_aligned: bool = False  # panels share the y axis, and one legend below them
    note: str = ""  # small print below
