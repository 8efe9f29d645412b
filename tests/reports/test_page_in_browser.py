"""The page as a reader meets it: opened from disk in a real browser, wide and narrow, light and dark, by keyboard."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ccp_dml.reports.page import write_report

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("count", [1, 2])
def test_it_opens_offline_without_complaint_and_fits_the_screen(
    open_report: Callable[..., Any],
    illustrated_runs: list[Path],
    artefacts: Callable[[str], Path],
    count: int,
    width: int,
    scheme: str,
) -> None:
    opened = open_report(illustrated_runs[-count:], width, scheme)
    page = opened.page
    page.screenshot(path=artefacts(f"{count}-runs-{width}-{scheme}.png"), full_page=True)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [page.url]
    assert opened.overflow() <= 0
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert opened.overflow() <= 0
    assert page.locator("figure.chart polyline").count() >= 5
    assert page.locator(".query img").count() >= 12 * 9
    assert page.locator("figure.map circle").count() >= 50
    assert page.locator(".heat-map td.own").count() >= 5
    broken = "[...document.images].filter((image) => !image.naturalWidth).length"
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    assert page.evaluate(broken) == 0


def test_light_and_dark_look_different_and_are_both_readable(
    open_report: Callable[..., Any], two_runs: list[Path]
) -> None:
    def brightness(colour: str) -> float:
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) / 3

    style = "(name) => getComputedStyle(document.body)[name]"
    for scheme, paper_is_bright in (("light", True), ("dark", False)):
        page = open_report(two_runs, scheme=scheme).page
        paper, ink = (brightness(page.evaluate(style, name)) for name in ("backgroundColor", "color"))
        assert (paper > ink) is paper_is_bright
        assert abs(paper - ink) > 150


def test_names_that_are_too_long_for_a_phone_do_not_widen_it(
    open_report: Callable[..., Any],
    write_run: Callable[..., Path],
    made_up_gallery: Callable[..., dict],
    tmp_path: Path,
) -> None:
    gallery = made_up_gallery(0.5, names=("Averylongnamewithoutanyspace" * 4,) * 10)
    runs = [write_run(tmp_path / f"{'long-run-name-' * 8}{number}", gallery=gallery) for number in range(9)]
    opened = open_report(runs, width=390)
    opened.page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert opened.overflow() <= 0
    plot = opened.page.locator(".plot").first
    for x in (5, 140, 270):
        plot.hover(position={"x": x, "y": 50})
        assert opened.overflow() <= 0


def test_a_long_path_in_a_sentence_does_not_widen_a_phone(
    open_report: Callable[..., Any], write_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run")
    outline = {"sentence": f"resnet50 with the weights in /data{'/longfolder' * 8}/resnet50.safetensors, frozen."}
    (run / "outline.json").write_text(json.dumps(outline), encoding="utf-8")
    opened = open_report([run], width=390)
    assert "longfolder" in opened.page.locator("#summary").inner_text()
    assert opened.overflow() <= 0


def test_class_names_run_no_script(
    open_report: Callable[..., Any],
    write_run: Callable[..., Path],
    made_up_gallery: Callable[..., dict],
    tmp_path: Path,
) -> None:
    attack = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    gallery = made_up_gallery(0.5, names=tuple(f"{attack}{label}" for label in range(10)))
    opened = open_report([write_run(tmp_path / "run", gallery=gallery)])
    assert opened.page.title() == "run · CCP report"
    assert opened.complaints == []
    assert attack in opened.page.locator(".class-name").first.inner_text()


def test_details_open_by_keyboard(open_report: Callable[..., Any], two_runs: list[Path]) -> None:
    page = open_report(two_runs[1:]).page
    block = page.locator("#configuration details", has_text="negative_margin")
    assert not page.get_by_text("negative_margin").is_visible()
    block.locator("summary").focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("negative_margin").is_visible()
    page.keyboard.press("Enter")
    assert not page.get_by_text("negative_margin").is_visible()


def test_charts_are_read_by_arrow_keys(open_report: Callable[..., Any], two_runs: list[Path]) -> None:
    page = open_report(two_runs[1:]).page
    plot = page.locator("#curves .plot").first
    tooltip = plot.locator(".tooltip")
    assert not tooltip.is_visible()
    plot.focus()
    page.keyboard.press("End")
    assert tooltip.inner_text().splitlines() == ["step 2,000 (problem 5)", "MAP@R 42.5", "P@R 51.5", "P@1 77.5"]
    page.keyboard.press("ArrowLeft")
    assert tooltip.inner_text().startswith("step 1,950")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert tooltip.inner_text().startswith("step 100")
    page.keyboard.press("Escape")
    assert not tooltip.is_visible()


def test_the_tooltip_follows_the_pointer_and_stays_on_the_curve(
    open_report: Callable[..., Any], two_runs: list[Path]
) -> None:
    page = open_report(two_runs).page
    plot = page.locator("#curves .plot").first
    box = plot.bounding_box()
    assert box
    plot.hover(position={"x": box["width"] * (1000 - 50) / (2000 - 50), "y": 40})
    assert plot.locator(".tooltip").inner_text().splitlines()[0] == "step 1,000"
    dots, values = plot.locator(".guide .dot"), page.locator("#curves tbody tr[data-left]").nth(19).locator("td")
    assert dots.count() == 2
    for place in range(2):
        dot = dots.nth(place).bounding_box()
        assert dot
        value = float(values.nth(place).text_content() or "nan")
        middle = box["y"] + box["height"] * (1 - value / 50)  # the axis ends at 50 %
        assert dot["y"] + dot["height"] / 2 == pytest.approx(middle, abs=1.5)


def test_a_link_to_a_run_opens_its_details(open_report: Callable[..., Any], two_runs: list[Path]) -> None:
    page = open_report(two_runs).page
    assert not page.locator("#run-2-summary").is_visible()
    page.locator("table.comparison").get_by_text("c2-ccp").click()
    page.locator("#run-2-summary").wait_for(state="visible")
    assert not page.locator("#run-1-summary").is_visible()


def test_paper_shows_what_is_folded_on_the_screen(open_report: Callable[..., Any], two_runs: list[Path]) -> None:
    page = open_report(two_runs[1:], scheme="dark").page
    page.emulate_media(media="print")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('main section')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.get_by_text("negative_margin").is_visible()
    assert not page.get_by_role("navigation").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.get_by_text("negative_margin").is_visible()


def test_the_page_is_complete_without_scripts(browser: Browser, two_runs: list[Path], tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write_report(two_runs, tmp_path / "report.html").as_uri())
    assert page.locator("figure.chart polyline").first.is_visible()
    page.locator("#curves details summary").first.click()
    assert page.locator("#curves details table").first.is_visible()
    context.close()
