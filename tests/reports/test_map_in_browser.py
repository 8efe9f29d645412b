"""The map of the embedding under a reader's hands: slider, pointer, finger, keyboard, legend."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from ccp_dml.records.planar_map import embedding_map
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.page import write_report

pytestmark = pytest.mark.browser

STILL = "*, *::before { transition: none !important; }"  # movements end at once, so that places can be measured


@pytest.fixture
def map_page(open_report: Callable[..., Any], illustrated_runs: list[Path]) -> Page:
    opened = open_report(illustrated_runs[1:])
    opened.page.add_style_tag(content=STILL)
    return opened.page


def centre(page: Page, selector: str, number: int = 0) -> tuple[float, float]:
    """Where a mark stands, in units of the drawing."""
    view, box = page.locator(".map-view svg").first.bounding_box(), page.locator(selector).nth(number).bounding_box()
    assert view
    assert box
    scale = 1000 / view["width"]
    x, y = box["x"] + box["width"] / 2 - view["x"], box["y"] + box["height"] / 2 - view["y"]
    return x * scale, y * scale


def hover(page: Page, selector: str, number: int = 0) -> None:
    x, y = centre(page, selector, number)
    view = page.locator(".map-view svg").bounding_box()
    assert view
    scale = view["width"] / 1000
    page.locator(".map-view svg").scroll_into_view_if_needed()
    page.locator(".map-view svg").hover(position={"x": x * scale, "y": y * scale})


def test_the_slider_moves_points_and_proxies_to_where_the_problem_left_them(
    map_page: Page, illustrated_runs: list[Path], artefacts: Callable[[str], Path]
) -> None:
    found = embedding_map(RunFolder.read(illustrated_runs[1]))
    assert found is not None
    slider = map_page.locator(".map input[type=range]")
    assert "problem 3 of 3" in map_page.locator(".map-state").inner_text()
    map_page.locator("#map").screenshot(path=artefacts("map-last-problem.png"))
    slider.focus()
    for frame, key in ((2, None), (1, "ArrowLeft"), (0, "ArrowLeft"), (2, "End")):
        if key:
            map_page.keyboard.press(key)
        expected = found.frames[frame]
        for number in (0, 7, 23):
            place = expected.points["train"][2 * number : 2 * number + 2]
            assert centre(map_page, ".layer.train circle", number) == pytest.approx(place, abs=1)
        square = expected.proxies["converged"][2:4]  # type: ignore[index]
        assert centre(map_page, ".layer.converged rect", 1) == pytest.approx(square, abs=1)
        circles = map_page.locator(".map-view .layer.selected circle")
        if expected.proxies["selected"] is None:
            assert not circles.first.is_visible()
        else:
            assert centre(map_page, ".map-view .layer.selected circle", 1) == pytest.approx(
                expected.proxies["selected"][2:4], abs=1
            )


def test_the_pointer_finds_the_image(map_page: Page, illustrated_runs: list[Path]) -> None:
    found = embedding_map(RunFolder.read(illustrated_runs[1]))
    assert found is not None
    for kind in ("converged", "selected"):
        map_page.locator(f"[data-layer={kind}]").uncheck()
    tooltip = map_page.locator(".map-view .tooltip")
    assert not tooltip.is_visible()
    side = found.sides["train"]
    for number in (0, 11, 20):
        hover(map_page, ".layer.train circle", number)
        shown = tooltip.inner_text().splitlines()
        assert shown == [side.classes[side.labels[number]], side.names[number]]
        face = tooltip.locator(".map-face")
        style = face.evaluate("(e) => [getComputedStyle(e).backgroundImage.slice(0, 20), e.style.backgroundPosition]")
        assert style[0] == 'url("data:image/webp'
        columns, rows = side.sheet["columns"], side.sheet["rows"]  # type: ignore[index]
        x, y = 100 * (number % columns) / (columns - 1), 100 * (number // columns) / (rows - 1)
        assert [float(part.rstrip("%")) for part in style[1].split()] == pytest.approx([x, y], abs=0.01)
    map_page.mouse.move(2, 2)
    assert not tooltip.is_visible()


def test_a_finger_finds_it_too_and_nothing_overflows(
    open_report: Callable[..., Any], illustrated_runs: list[Path], artefacts: Callable[[str], Path]
) -> None:
    opened = open_report(illustrated_runs[1:], width=390, scheme="dark")
    page = opened.page
    page.add_style_tag(content=STILL)
    view = page.locator(".map-view svg")
    view.scroll_into_view_if_needed()
    box = view.bounding_box()
    for number in range(0, 24, 5):
        x, y = centre(page, ".layer.train circle", number)
        view.tap(position={"x": x * box["width"] / 1000, "y": y * box["width"] / 1000})
        assert page.locator(".map-view .tooltip").is_visible()
        assert opened.overflow() <= 0
    page.locator("#map").screenshot(path=artefacts("map-390-dark.png"))
    assert opened.complaints == []


def test_arrow_keys_walk_from_point_to_point(map_page: Page) -> None:
    view, tooltip = map_page.locator(".map-view"), map_page.locator(".map-view .tooltip")
    view.focus()
    map_page.keyboard.press("ArrowRight")
    assert tooltip.is_visible()
    places = [centre(map_page, ".map-view .ring")]
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        map_page.keyboard.press(key)
        places.append(centre(map_page, ".map-view .ring"))
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(places)]
    assert steps[0][0] > 0
    assert steps[1][0] < 0
    assert steps[2][1] > 0
    assert steps[3][1] < 0
    map_page.keyboard.press("Escape")
    assert not tooltip.is_visible()


def test_layers_and_classes_are_switched(map_page: Page) -> None:
    validation = map_page.locator(".map-view .layer.validation circle").first
    assert not validation.is_visible()
    map_page.get_by_label("Validation classes").check()
    assert validation.is_visible()
    map_page.get_by_label("Training classes").uncheck()
    assert not map_page.locator(".map-view .layer.train circle").first.is_visible()
    button = map_page.locator('.map-legend button[data-class="train-1"]')
    button.focus()
    map_page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert map_page.get_by_label("Training classes").is_checked()  # who picks a class wants to see it
    opacity = "(e) => Number(getComputedStyle(e).opacity)"
    groups = map_page.locator(".map-view .layer.train g")
    assert [groups.nth(place).evaluate(opacity) for place in range(3)] == [0.1, 1, 0.1]
    map_page.keyboard.press("Enter")
    assert groups.nth(0).evaluate(opacity) == 1


def test_it_plays_from_the_first_problem_to_the_last(map_page: Page) -> None:
    map_page.get_by_role("button", name="Play").click()
    assert "problem 1 of 3" in map_page.locator(".map-state").inner_text()
    map_page.get_by_role("button", name="Pause").click()
    assert map_page.get_by_role("button", name="Play").is_visible()


def test_several_maps_stand_side_by_side(
    open_report: Callable[..., Any], illustrated_runs: list[Path], artefacts: Callable[[str], Path]
) -> None:
    opened = open_report(illustrated_runs)
    page = opened.page
    first, second = (page.locator(".map-view").nth(place).bounding_box() for place in range(2))
    assert first["y"] == pytest.approx(second["y"], abs=1)
    assert first["x"] + first["width"] < second["x"]
    assert page.locator(".map input[type=range]").count() == 1  # a baseline has one problem
    page.locator("#map").screenshot(path=artefacts("map-compared.png"))
    assert opened.complaints == []


def test_without_scripts_the_last_problem_is_drawn(browser: Any, illustrated_runs: list[Path], tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write_report(illustrated_runs[1:], tmp_path / "report.html").as_uri())
    found = embedding_map(RunFolder.read(illustrated_runs[1]))
    assert found is not None
    assert centre(page, ".layer.train circle", 5) == pytest.approx(found.frames[-1].points["train"][10:12], abs=1)
    assert not page.locator(".map input").first.is_visible()
    context.close()
