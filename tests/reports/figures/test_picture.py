"""Figures as files of matplotlib; what they share with the browser's is in test_interactive.py."""

from pathlib import Path

import pytest

from ccp_dml.reports.figures import picture
from ccp_dml.reports.figures.figure import BarGroup, Bars, Figure, Points, Scatter

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


def test_the_same_figure_gives_the_same_file(tmp_path: Path) -> None:
    figure = Figure("x", "title", "caption", [COMPARED])
    for ending in ("png", "svg"):
        one, other = (picture.write_picture(tmp_path / f"{name}.{ending}", figure) for name in "ab")
        assert one.read_bytes() == other.read_bytes()
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_panels_stand_side_by_side_or_share_their_axis() -> None:
    bars = [Bars("t", "", "%", ["C1"], [BarGroup("a", [height])]) for height in (1.0, 10.0)]
    apart = picture.draw(Figure("x", "title", "caption", bars))
    aligned = picture.draw(Figure("x", "title", "caption", bars, is_aligned=True))
    assert apart.axes[0].get_ylim() != apart.axes[1].get_ylim()
    assert aligned.axes[0].get_ylim() == aligned.axes[1].get_ylim()


def test_a_gap_is_no_bar() -> None:
    axis = picture.draw(Figure("x", "t", "c", [Bars("t", "", "", ["a", "b"], [BarGroup("g", [None, 2.0])])])).axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    assert heights[-1] == 2.0
    assert not any(height > 0 for height in heights[:-1])


def test_bars_are_compared_with_references() -> None:
    canvas = picture.draw(Figure("x", "title", "caption", [COMPARED, COMPARED], is_aligned=True, note="small print"))
    axis = canvas.axes[0]
    diamonds = [(one.get_xdata()[0], one.get_ydata()[0]) for one in axis.lines if one.get_marker() == "D"]
    assert diamonds == [(pytest.approx(-0.2), 2.0), (pytest.approx(1.2), 5.0)]
    assert "+3.0" in [text.get_text() for text in axis.texts]
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["XBM", "CCP", "paper"]
    assert canvas.texts[-1].get_text() == "small print"
    assert axis.get_ylim() == canvas.axes[1].get_ylim()


def test_values_of_bars_stay_within_the_panel() -> None:
    bars = Bars("t", "", "%", ["C1"], [BarGroup("XBM", [0.0]), BarGroup("CCP", [-40.0])], has_values=True)
    canvas = picture.draw(Figure("x", "title", "caption", [bars, bars], is_aligned=True))
    canvas.draw_without_rendering()
    for axis in canvas.axes:
        for text in axis.texts:
            box = text.get_window_extent()
            assert axis.bbox.y0 <= box.y0 < box.y1 <= axis.bbox.y1, text.get_text()


@pytest.mark.filterwarnings("error")  # as for a letter that the font lacks
def test_names_of_classes_are_no_formulas_and_hide_nothing(tmp_path: Path) -> None:
    names = ["A$AP", "$_$", "$5 to $6", "_misc"]
    marks = [Points(name, [1, 2], [3, 4], style, palette="classes") for style, name in enumerate(names)]
    figure = Figure("x", "of $_$", "caption", [Scatter("t", "", "", marks)])
    picture.write_picture(tmp_path / "x.png", figure)  # a formula that cannot be read ends here
    shown = [text.get_text() for text in picture.draw(figure).legends[0].get_texts()]
    assert shown == ["A\\$AP", "\\$_\\$", "\\$5 to \\$6", "\N{ZERO WIDTH SPACE}_misc"]
