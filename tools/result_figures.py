"""Draw the figures of docs/results.md from its own tables, so that a figure and its numbers cannot differ.

    python tools/result_figures.py    draws all of them into docs/assets

A mark `<!-- figure: NAME -->` stands above each picture; the table below it is drawn into results-NAME.svg. A column
is drawn where most of its cells are numbers, `12.3` or `12.3 ± 0.4`. Where the first column is called `step`, all
columns become curves in one panel. Where it counts (1, 2, 3, ...) over more than two rows, each column becomes a curve
in a panel of its own; otherwise each row becomes a line with a dot per column.
"""

import re
from itertools import dropwhile, takewhile
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
PAGE = ASSETS.parent / "results.md"
MARK = re.compile(r"<!-- figure: ([\w-]+) -->(.*?)(?=<!-- figure:|^## |\Z)", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")
COLOURS = {"ccp": "#e07b39", "proxy": "#3aa39a", "radius": "#6b6fd6"}
PLAIN = "#8a93a8"
INK = "#757d8f"  # readable on light and on dark

Value = tuple[float, float]
Column = tuple[str, list[Value | None]]


def figures(page: str) -> dict[str, str]:
    """Draw every marked table of a page: name -> SVG."""
    return {name: draw(*read_table(section)) for name, section in MARK.findall(page)}


def read_table(section: str) -> tuple[str, list[str], list[Column]]:
    """Read the first table of a section: what its rows are, their labels, and its columns of numbers."""
    from_table_on = dropwhile(lambda line: not line.startswith("|"), section.splitlines())
    rows = [line.strip("| ").split("|") for line in takewhile(lambda line: line.startswith("|"), from_table_on)]
    heading, body = [cell.strip(" `") for cell in rows[0]], rows[2:]
    labels = [row[0].strip(" `") for row in body]
    columns: list[Column] = []
    for index, name in enumerate(heading[1:], start=1):
        values = [value_of(row[index].strip()) for row in body]
        if sum(value is not None for value in values) * 2 > len(values):
            columns.append((name, values))
    return heading[0], labels, columns


def value_of(cell: str) -> Value | None:
    found = NUMBER.fullmatch(cell)
    return (float(found[1]), float(found[2] or 0)) if found else None


def draw(rows: str, labels: list[str], columns: list[Column]) -> str:
    if rows == "step":
        return training([float(label.replace(",", "")) for label in labels], columns)
    counts = len(labels) > 2 and all(label.isdigit() for label in labels)
    return curves(labels, columns) if counts else dots(labels, columns)


def span(values: list[Value]) -> tuple[float, float]:
    """Find an axis that holds all values and their spread, with a little air."""
    low, high = min(mean - spread for mean, spread in values), max(mean + spread for mean, spread in values)
    air = 0.08 * (high - low) or 1.0
    return low - air, high + air


def ticks(low: float, high: float) -> list[float]:
    """Choose three to seven round numbers between two ends."""
    step = next(
        base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5) if (high - low) / (base * 10.0**power) <= 6
    )
    first = int(low / step) + (low > 0)
    return [number * step for number in range(first, int(high / step) + 1)]


def colour_of(name: str) -> str:
    """Give a method the same colour in every figure."""
    return next((colour for part, colour in COLOURS.items() if part in name), PLAIN)


def svg(width: int, height: int, parts: list[str]) -> str:
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}">'
    )
    return "\n".join([opening, *parts, "</svg>"]) + "\n"


def legend(columns: list[Column], place: int) -> list[str]:
    """Name the colours of all columns, side by side, from `place` on."""
    parts = []
    for name, _ in columns:
        colour = colour_of(name)
        parts.append(f'<circle cx="{place}" cy="14" r="5" fill="{colour}"/><text x="{place + 10}" y="18">{name}</text>')
        place += 30 + 8 * len(name)
    return parts


def dots(labels: list[str], columns: list[Column]) -> str:
    """Draw a line per row, with a dot and its spread for each column."""
    left, right, top, row_height, width = 90, 24, 34, 34, 640
    bottom = top + row_height * len(labels)
    low, high = span([value for _, values in columns for value in values if value])

    def x(value: float) -> float:
        return round(left + (value - low) / (high - low) * (width - left - right), 1)

    parts = []
    for tick in ticks(low, high):
        parts.append(f'<path d="M{x(tick)} {top}V{bottom}" stroke="{INK}" stroke-opacity=".25"/>')
        parts.append(f'<text x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    parts += legend(columns, left)
    for row, label in enumerate(labels):
        y = top + row_height * (row + 0.5)
        parts.append(f'<text x="{left - 14}" y="{y + 4:g}" text-anchor="end">{label}</text>')
        for index, (name, values) in enumerate(columns):
            if value := values[row]:
                mean, spread = value
                height, colour = y + 7 * (index - (len(columns) - 1) / 2), colour_of(name)
                if spread:
                    ends = f"M{x(mean - spread)} {height:g}H{x(mean + spread)}"
                    parts.append(f'<path d="{ends}" stroke="{colour}" stroke-width="2"/>')
                parts.append(f'<circle cx="{x(mean)}" cy="{height:g}" r="4.5" fill="{colour}"/>')
    return svg(width, bottom + 28, parts)


def training(steps: list[float], columns: list[Column]) -> str:
    """Draw a curve per column over the steps of a training."""
    width, height, left, right, top, bottom = 640, 300, 52, 24, 34, 264
    low, high = span([value for _, values in columns for value in values if value])

    def x(step: float) -> float:
        return round(left + (step - steps[0]) / (steps[-1] - steps[0]) * (width - left - right), 1)

    def y(value: float) -> float:
        return round(bottom - (value - low) / (high - low) * (bottom - top), 1)

    parts = legend(columns, left)
    for tick in ticks(low, high):
        parts.append(f'<path d="M{left} {y(tick)}H{width - right}" stroke="{INK}" stroke-opacity=".25"/>')
        parts.append(f'<text x="{left - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(steps[0], steps[-1]):
        parts.append(f'<text x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:,g}</text>')
    for name, values in columns:
        places = [f"{x(step)} {y(value[0])}" for step, value in zip(steps, values, strict=True) if value]
        parts.append(f'<path d="M{"L".join(places)}" fill="none" stroke="{colour_of(name)}" stroke-width="2.5"/>')
    return svg(width, height, parts)


def curves(labels: list[str], columns: list[Column]) -> str:
    """Draw a panel per column, with a curve over the rows."""
    panel, height, left, right, top, bottom = 320, 200, 52, 16, 30, 164
    parts = []
    for index, (name, values) in enumerate(columns):
        offset, colour = panel * index, colour_of(name)
        low, high = span([value for value in values if value])
        places = []
        for tick in ticks(low, high):
            y = bottom - (tick - low) / (high - low) * (bottom - top)
            line = f"M{offset + left} {y:.1f}H{offset + panel - right}"
            parts.append(f'<path d="{line}" stroke="{INK}" stroke-opacity=".25"/>')
            parts.append(f'<text x="{offset + left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for row, (label, value) in enumerate(zip(labels, values, strict=True)):
            x = offset + left + 10 + row * (panel - left - right - 20) / (len(labels) - 1)
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
            if value:
                places.append(f"{x:.1f} {bottom - (value[0] - low) / (high - low) * (bottom - top):.1f}")
        parts.append(f'<path d="M{"L".join(places)}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{p.split()[0]}" cy="{p.split()[1]}" r="4" fill="{colour}"/>' for p in places]
        parts.append(f'<text x="{offset + left}" y="16">{name}, by problem</text>')
    return svg(panel * len(columns), height, parts)


if __name__ == "__main__":
    for name, drawing in figures(PAGE.read_text(encoding="utf-8")).items():
        (ASSETS / f"results-{name}.svg").write_text(drawing, encoding="utf-8")
