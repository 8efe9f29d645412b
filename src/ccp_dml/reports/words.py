"""How values are written on the page."""

import json
from typing import Any

from ccp_dml.records.run_folder import embedded_picture
from ccp_dml.reports.comparison import MISSING, percent
from ccp_dml.reports.figures.charts import STYLES

CLASS_COLOURS = 12  # how many map.css knows


def duration(seconds: float | None) -> str:
    """For example "2 min 54 s"."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def milliseconds(seconds: float | None) -> str:
    """For example "104 ms"; three digits, whatever the size."""
    return MISSING if seconds is None else f"{1000 * seconds:#.3g}".rstrip(".") + " ms"


def megabytes(size: float | None) -> str:
    return MISSING if size is None else f"{size / 2**20:,.0f} MB"


def share(value: float | None) -> str:
    return MISSING if value is None else f"{percent(value)} %"


def count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def whole(value: float | None) -> str:
    """A mean of counts."""
    return MISSING if value is None else f"{value:,.0f}"


def decimals(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def setting(value: Any) -> str:
    """A value of the configuration or the environment as a person would type it."""
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def style_class(style: int | None) -> str:
    """The CSS class of a run's or a line's colour; none for what belongs to no line."""
    return "" if style is None else f"s{style % STYLES}"


def class_colour(place: int) -> str:
    """The CSS class of the colour that a class has on maps."""
    return f"k{place % CLASS_COLOURS}"


FILTERS = {
    "percent": percent,
    "duration": duration,
    "count": count,
    "decimals": decimals,
    "setting": setting,
    "picture": embedded_picture,
    "style_class": style_class,
    "class_colour": class_colour,
}
