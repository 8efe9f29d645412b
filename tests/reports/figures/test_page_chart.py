import math
from typing import Any

import pytest

from ccp_dml.reports.figures.page_chart import MOST_POINTS, Chart, Curve, Highlight, Mark, draw, nice_ticks


def chart(*points: tuple[float, float], decimals: int | None = 2, **changes: Any) -> Chart:
    return Chart("title", "step", "y", [Curve("line", points)], decimals, **changes)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 0.43, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (50, 2000, [0, 500, 1000, 1500, 2000]),
        (0.31, 0.33, [0.31, 0.315, 0.32, 0.325, 0.33]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)


def test_whole_ticks_have_no_fractions_and_equal_values_still_have_a_scale() -> None:
    assert nice_ticks(1, 3, whole=True) == [1, 2, 3]
    assert nice_ticks(4, 4, whole=True) == [4, 5]
    for value in (0.0, 0.5, -3.0):
        ticks = nice_ticks(value, value)
        assert ticks[0] < value < ticks[-1]


def test_values_that_differ_by_rounding_alone_are_drawn() -> None:
    drawn = draw(chart((100, 1.0), (200, math.nextafter(1.0, 0.0)), (300, 1.0)))
    assert drawn is not None
    assert len({tick.text for tick in drawn.y_ticks}) == len(drawn.y_ticks) > 1


def test_values_stand_where_the_ticks_say() -> None:
    drawn = draw(chart((100, 0.0), (200, 0.25), (300, 1.0)))
    assert drawn is not None
    assert drawn.lines == ["0.0,100.0 50.0,75.0 100.0,0.0"]
    assert [(tick.at, tick.text) for tick in drawn.y_ticks] == [
        (0, "0.0"),
        (20, "0.2"),
        (40, "0.4"),
        (60, "0.6"),
        (80, "0.8"),
        (100, "1.0"),
    ]
    assert [(tick.at, tick.text) for tick in drawn.x_ticks] == [
        (0, "100"),
        (25, "150"),
        (50, "200"),
        (75, "250"),
        (100, "300"),
    ]


def test_values_have_as_many_decimals_as_asked_for_or_as_their_size_asks_for() -> None:
    points = ((1, 0.012), (2, 1.234), (3, 45.64))
    for decimals, expected in ((1, ["0.0", "1.2", "45.6"]), (None, ["0.012", "1.23", "45.6"])):
        drawn = draw(chart(*points, decimals=decimals))
        assert drawn is not None
        assert [row.points[0].text for row in drawn.rows if row.points[0]] == expected
        assert drawn.y_ticks[-1].text == "50"


def test_limits_may_be_given() -> None:
    drawn = draw(chart((16, 10.0), (32, 20.0), y_limits=(0, 100)))
    assert drawn is not None
    assert [tick.text for tick in drawn.y_ticks] == ["0", "20", "40", "60", "80", "100"]
    assert drawn.lines == ["0.0,90.0 100.0,80.0"]


def test_lines_with_other_steps_share_one_table() -> None:
    curves = [Curve("a", [(1, 1.0), (3, 3.0)]), Curve("b", [(3, 4.0)], style=1)]
    drawn = draw(Chart("t", "step", "y", curves, 1, notes={3: "p"}))
    assert drawn is not None
    assert [row.text for row in drawn.rows] == ["1", "3 (p)"]
    assert drawn.rows[0].points[1] is None
    assert [point.text for point in drawn.rows[1].points if point] == ["3.0", "4.0"]


def test_marks_stay_inside_and_their_labels_apart() -> None:
    marks = [Mark(x, str(x)) for x in (10, 12, 50, 500)]
    drawn = draw(chart((0, 0.0), (100, 1.0), marks=marks))
    assert drawn is not None
    assert [(mark.left, mark.text) for mark in drawn.marks] == [(10, "10"), (12, ""), (50, "50")]


def test_a_highlight_is_inside_even_when_its_point_was_thinned_out() -> None:
    points = [(float(x), 0.5) for x in range(3 * MOST_POINTS)]
    drawn = draw(chart(*points, highlights=[Highlight(1.0, 0.9, "best")]))
    assert drawn is not None
    assert len(drawn.rows) == MOST_POINTS
    assert drawn.rows[-1].text == "1,199"  # where training ended is always shown
    assert 0 <= drawn.highlights[0].bottom <= 100


def test_nothing_to_draw_is_no_chart_and_one_point_is_one() -> None:
    assert draw(chart()) is None
    single = draw(chart((5, 0.0)))
    assert single is not None
    assert all(math.isfinite(tick.at) for tick in single.x_ticks + single.y_ticks)


def test_values_far_below_one_have_ticks_of_their_own() -> None:
    drawn = draw(chart((0, 0.0), (100, 3.1e-13), (200, 9.7e-13)))
    assert drawn is not None
    assert [tick.text for tick in drawn.y_ticks] == ["0", "2e-13", "4e-13", "6e-13", "8e-13", "1e-12"]
    assert nice_ticks(0, 9.7e-13) == pytest.approx([0, 2e-13, 4e-13, 6e-13, 8e-13, 1e-12], rel=1e-9, abs=0)
