"""What a study leaves for its readers, opened in a real browser."""

import csv
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ccp_dml.reports.figures.figure import Figure, HeatMap, Line, Lines
from ccp_dml.reports.study import StudyReport, write_study_report

ATTACK = "</script><script>document.title = 'owned'</script>"


@pytest.fixture
def report() -> StudyReport:
    curves = Lines("curves", "step", "MAP@R", [Line("CCP", [1, 2], [3, 4], 1), Line(ATTACK, [1, 2], [2, 3])])
    grid = HeatMap("grid", "b", "P", "MAP@R", ["1", "4"], ["2"], [[1.5, 2.5]])
    rows: list[dict[str, Any]] = [
        {"method": "c2", "value": 0.123456, "pool": None},
        {"method": "c2-ccp", "value": 0.2, "pool": 12},
    ]
    figures = [Figure("curves", "Curves", "what they show", [curves, grid])]
    return StudyReport(f"Title {ATTACK}", "A question?", "A finding.", ["A note."], figures, rows, "ccp study x")


def test_files(report: StudyReport, tmp_path: Path) -> None:
    assert write_study_report(tmp_path, report) == tmp_path / "study.html"
    with (tmp_path / "results.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"method": "c2", "value": "0.123456", "pool": ""},
            {"method": "c2-ccp", "value": "0.2", "pool": "12"},
        ]
    summary = (tmp_path / "summary.md").read_text()
    for text in ("A finding.", "A note.", "![Curves](curves.png)", "ccp study x"):
        assert text in summary
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "study.html").stat().st_size < 10e6


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_opens_offline_and_fits(
    browser: Browser, report: StudyReport, tmp_path: Path, width: int, scheme: str
) -> None:
    write_study_report(tmp_path, report)
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "study.html").as_uri())
    page.locator(".panel .main-svg").first.wait_for()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert page.title().startswith("Title </script>")  # shown, not run
    assert page.evaluate("document.querySelectorAll('.panel')[0].data.map((line) => line.y)") == [[3, 4], [2, 3]]
    ink = page.evaluate("document.querySelectorAll('.panel')[0].layout.font.color")
    assert ink == {"light": "#1b2230", "dark": "#e7ebf2"}[scheme]
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    page.wait_for_function("(old) => document.querySelectorAll('.panel')[0].layout.font.color !== old", arg=ink)
    context.close()
