"""One description, two renderers: a picture and a panel for the browser."""

import re
from pathlib import Path

import pytest
from plotly import graph_objects

from ccp_dml.reports.figures import picture
from ccp_dml.reports.figures.figure import (
    BarGroup,
    Bars,
    Figure,
    HeatMap,
    Highlight,
    Histogram,
    Line,
    Lines,
    Mark,
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


def test_bins_are_whole_multiples_of_their_width() -> None:
    panel = PANELS["histogram"]
    assert isinstance(panel, Histogram)
    assert panel.bin_edges() == [50, 75, 100, 125, 150]
    canvas = picture.draw(Figure("x", "title", "caption", [panel]))
    assert [bar.get_height() for bar in canvas.axes[0].patches] == [1, 2, 0, 1]
    assert plotly_panel(panel)["data"][0]["xbins"] == {"start": 50, "end": 150, "size": 25}


MARKED = Lines(
    "t",
    "step",
    "y",
    [Line("a", [1, 10], [2, 20], 1)],
    log_y=True,
    y_limits=(1, 100),
    marks=[Mark(5, "2", 1), Mark(7, "3")],
    marks_label="a new problem starts",
    highlights=[Highlight(10, 20, "best", 1)],
    notes={10: "problem 2"},
    decimals=1,
)
COMPARED = Bars(
    "t",
    "",
    "%",
    ["C1", "C2"],
    [
        BarGroup("XBM", [1.0, None], 1, palette="variants", references=[2.0, None]),
        BarGroup("CCP", [3.0, -4.0], 3, palette="variants", references=[None, 5.0]),
    ],
    reference_label="paper",
    has_values=True,
)


def test_marks_highlights_and_limits_are_in_both() -> None:
    panel = plotly_panel(MARKED)
    graph_objects.Figure(with_colours(panel))
    line, best, key = panel["data"]
    assert (line["text"], line["hovertemplate"]) == (["", " (problem 2)"], "%{x:,g}%{text}: %{y:.1f}")
    assert (best["name"], best["x"], best["y"]) == ("best", [10], [20])
    assert key["name"] == "a new problem starts"
    assert [(shape["x0"], shape["line"]["color"]) for shape in panel["layout"]["shapes"]] == [
        (5, "var(--s1)"),
        (7, "var(--soft)"),
    ]
    assert panel["layout"]["yaxis"]["range"] == [0, 2]
    axis = picture.draw(Figure("x", "title", "caption", [MARKED])).axes[0]
    assert [text.get_text() for text in axis.texts] == ["2", "3"]
    assert axis.get_legend_handles_labels()[1] == ["a new problem starts", "best", "a"]
    assert (axis.get_yscale(), axis.get_ylim()) == ("log", (1, 100))


def test_bars_are_compared_with_references_in_both() -> None:
    panel = plotly_panel(COMPARED)
    graph_objects.Figure(with_colours(panel))
    xbm, ccp, of_xbm, of_ccp = panel["data"]
    assert (xbm["offsetgroup"], ccp["offsetgroup"]) == (of_xbm["offsetgroup"], of_ccp["offsetgroup"]) == ("XBM", "CCP")
    assert (of_xbm["y"], of_ccp["y"]) == ([2.0, None], [None, 5.0])
    assert (of_xbm["showlegend"], of_ccp["showlegend"]) == (True, False)
    assert ccp["marker"]["color"] == "var(--v3)"
    canvas = picture.draw(Figure("x", "title", "caption", [COMPARED, COMPARED], is_aligned=True, note="small print"))
    axis = canvas.axes[0]
    diamonds = [(one.get_xdata()[0], one.get_ydata()[0]) for one in axis.lines if one.get_marker() == "D"]
    assert diamonds == [(pytest.approx(-0.2), 2.0), (pytest.approx(1.2), 5.0)]
    assert "+3.0" in [text.get_text() for text in axis.texts]
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["XBM", "CCP", "paper"]
    assert canvas.texts[-1].get_text() == "small print"
    assert axis.get_ylim() == canvas.axes[1].get_ylim()
