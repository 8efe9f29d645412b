"""Maps as panels of a figure: in two dimensions as they are, in more on one plane for all of them."""

import pytest
import torch

from ccp_dml.records.planar_map import UNIT_BALL, planar_problems
from ccp_dml.records.problem_map import MapPoints, ProblemMap
from ccp_dml.reports.figures.figure import Figure
from ccp_dml.reports.figures.interactive import plotly_panel
from ccp_dml.reports.figures.map_panels import problem_panels
from ccp_dml.reports.figures.picture import draw


def made_up_problem(number, dimensions, classes=10, seed=0):
    draw_from = torch.Generator().manual_seed(seed + number)
    labels = torch.arange(classes).repeat_interleave(5)
    names = tuple(f"class {label}" for label in range(classes))
    images = MapPoints(0.5 * torch.randn(len(labels), dimensions, generator=draw_from), labels, labels, names)
    proxies = 0.5 * torch.randn(2, classes, 3, dimensions, generator=draw_from)
    return ProblemMap(number, images, images, proxies[0], proxies[1])


def panels_of(dimensions):
    first, second = made_up_problem(1, dimensions), made_up_problem(2, dimensions)
    return (first, second), problem_panels(*planar_problems([first, second], [second, None]), ["one", "two"])


def test_two_dimensions_are_drawn_as_they_are():
    (first, second), panels = panels_of(2)
    kinds = {(group.symbol, group.is_outlined) for group in panels[0].groups}
    assert kinds == {("circle", False), ("square", True), ("circle", True)}
    for label in range(10):
        images, squares, circles = (panels[0].groups[label + 10 * kind] for kind in range(3))
        for drawn, points in (
            (images, first.train.embeddings[first.train.labels == label]),
            (squares, first.converged[label]),
            (circles, second.selected[label]),
        ):
            assert torch.tensor([drawn.x, drawn.y]).mT == pytest.approx(points, abs=1e-4)
    assert all(panel.limits == UNIT_BALL for panel in panels)
    assert not any(group.symbol == "circle" and group.is_outlined for group in panels[1].groups)


def test_more_dimensions_share_a_plane_and_limits_that_hold_everything():
    _, panels = panels_of(7)
    assert panels[0].limits == panels[1].limits
    low, high = panels[0].limits
    assert all(low < value < high for panel in panels for group in panel.groups for value in (*group.x, *group.y))


def test_ten_classes_have_ten_colours_in_both_forms():
    _, panels = panels_of(2)
    described = plotly_panel(panels[0])
    assert len({trace["marker"]["color"] for trace in described["data"]}) == 10
    assert described["layout"]["xaxis"]["range"] == described["layout"]["yaxis"]["range"] == list(UNIT_BALL)
    canvas = draw(Figure("maps", "Maps", "", panels))
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == [f"class {label}" for label in range(10)]
