"""How values are written on the page."""

import json
from typing import Any

from ccp_dml.reports.charts import STYLES
from ccp_dml.reports.comparison import percent


def duration(seconds: float | None) -> str:
    """For example "2 min 54 s"."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def decimals(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def setting(value: Any) -> str:
    """A value of the configuration or the environment as a person would type it."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def picture(uri: Any) -> str | None:
    """The picture if it is embedded: the page never asks the network for anything."""
    return uri if isinstance(uri, str) and uri.startswith("data:image/") else None


def style_class(style: int) -> str:
    """The CSS class of a run's or a line's colour."""
    return f"s{style % STYLES}"


FILTERS = {
    "percent": percent,
    "duration": duration,
    "count": count,
    "decimals": decimals,
    "setting": setting,
    "picture": picture,
    "style_class": style_class,
}
