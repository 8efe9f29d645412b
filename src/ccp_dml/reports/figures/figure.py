"""Figures described once, as plain values: `figure_png` draws them for papers, `figure_html` for the browser."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Symbol = Literal["circle", "square", "cross", "star"]
Palette = Literal["series", "classes"]
"""Colours that `style` picks from: those of lines and methods, or the twelve of classes on a map."""


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
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_ticks: Sequence[float] | None = None  # None: round values; the only ticks, where only some x are possible
    log_x: bool = False
    has_markers: bool = False


@dataclass(frozen=True)
class BarGroup:
    """A bar per category; None leaves a gap."""

    label: str
    values: Sequence[float | None]
    style: int = 0
    spread: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Bars:
    title: str
    x_label: str
    y_label: str
    categories: Sequence[str]
    groups: Sequence[BarGroup]


@dataclass(frozen=True)
class Sample:
    label: str
    values: Sequence[float]
    style: int = 0


@dataclass(frozen=True)
class Histogram:
    """How often values fall into bins of `bin_width`, the samples side by side."""

    title: str
    x_label: str
    y_label: str
    samples: Sequence[Sample]
    bin_width: float

    def bin_edges(self) -> list[float]:
        """Whole multiples of the bin width around all values."""
        values = [value for sample in self.samples for value in sample.values]
        first = math.floor(min(values) / self.bin_width)
        last = math.floor(max(values) / self.bin_width) + 1
        return [self.bin_width * place for place in range(first, last + 1)]


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
"""Beyond the lowest and highest y of a surface, so that points at its edge are seen whole."""

Panel = Lines | Bars | Histogram | HeatMap | Scatter | Surface


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one caption; `name` is its file's, without the ending."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
