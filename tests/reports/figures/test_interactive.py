"""One description, two renderers: a picture and a panel for the browser."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from plotly import graph_objects

from ccp_dml.reports.figures import picture
from ccp_dml.reports.figures.figure import (
    BarGroup,
    Bars,
    Figure,
    HeatMap,
    Histogram,
    Line,
    Lines,
    Points,
    Scatter,
    Surface,
)
from ccp_dml.reports.figures.interactive import plotly_panel

PANELS = {
    "lines": Lines("t", "x", "y", [Line("a", [16, 32], [1, 2], 0, [0.1, 0.2])], [16, 32], log_x=True, has_markers=True),
    "bars": Bars("t", "x", "y", ["c1", "c2"], [BarGroup("a", [1, None], 1, [0.5, None]), BarGroup("b", [2, 3])]),
    "histogram": Histogram("t", "x", "y", [50, 75, 75, 125], 25, 2),
    "heat map": HeatMap("t", "b", "P", "MAP", ["1", "4"], ["2", "8"], [[1.0, 2.0], [None, 4.0]]),
    "scatter": Scatter("t", "x", "y", [Points("p", [1, 2], [3, 4], 9, "cross", texts=["<b>", "c"])], equal_axes=True),
    "surface": Surface(
        "t", "l", "P", "MAP", [0.1, 1, 10], [1, 2], [[1, 2, 3], [4, 5, 6]], [Points("best", [1], [2])], True
    ),
}


def with_colours(value: object) -> object:
    """Colours as the page puts them in, so that Plotly itself can judge the rest."""
    if isinstance(value, dict):
        return {name: with_colours(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_colours(part) for part in value]
    return "#123456" if isinstance(value, str) and re.fullmatch(r"var\(--\w+\)", value) else value


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_is_valid_plotly_and_becomes_a_picture(name: str, tmp_path: Path) -> None:
    panel = PANELS[name]
    drawn = graph_objects.Figure(with_colours(plotly_panel(panel)))  # raises for an unknown property
    assert drawn.layout.xaxis.title.text == panel.x_label
    written = picture.write_picture(tmp_path / "x.png", Figure("x", "title", "caption", [panel, panel]))
    assert written.read_bytes().startswith(b"\x89PNG")


def test_both_show_the_same_values() -> None:
    heat, (bars, _) = plotly_panel(PANELS["heat map"])["data"][0], plotly_panel(PANELS["bars"])["data"]
    assert (heat["x"], heat["y"], heat["z"]) == (["1", "4"], ["2", "8"], [[1.0, 2.0], [None, 4.0]])
    assert (bars["y"], bars["error_y"]["array"]) == ([1, None], [0.5, 0.0])
    canvas = picture.draw(Figure("x", "title", "caption", [PANELS["heat map"], PANELS["bars"], PANELS["lines"]]))
    heat_axis, bar_axis, line_axis = canvas.axes[:3]
    assert [text.get_text() for text in heat_axis.texts] == ["1.0", "2.0", "4.0"]
    assert heat_axis.images[0].get_array().tolist()[1][1] == 4.0
    assert [bar.get_height() for bar in bar_axis.patches][2:] == [2, 3]
    assert line_axis.lines[0].get_ydata().tolist() == [1, 2]
    assert line_axis.get_xscale() == "log"


def test_both_count_in_the_same_bins() -> None:
    panel = PANELS["histogram"]
    assert isinstance(panel, Histogram)
    canvas = picture.draw(Figure("x", "title", "caption", [panel]))
    assert [bar.get_height() for bar in canvas.axes[0].patches] == [1, 2, 0, 1]
    assert plotly_panel(panel)["data"][0]["xbins"] == {"start": 50, "end": 150, "size": 25}
    assert plotly_panel(panel)["layout"]["yaxis"]["dtick"] == 1  # whole numbers, as on the picture
    assert "dtick" not in plotly_panel(replace(panel, values=[50] * 30))["layout"]["yaxis"]
