"""Pages opened in a real browser, where the machine has one."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ccp_dml.reports.page import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# No sandbox, because tests may run as root; no background traffic, because every request counts as a fault.
BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def artefacts() -> Callable[[str], Path]:
    """Where screenshots are kept for a person to look at; not committed."""
    folder = Path(__file__).parents[2] / "artefacts" / "report"
    folder.mkdir(parents=True, exist_ok=True)
    return lambda name: folder / name


@dataclass
class Opened:
    page: "Page"
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.fixture
def open_report(browser: "Browser", tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_it(runs: list[Path], width: int = 1280, scheme: str = "light") -> Opened:
        file = write_report(runs, tmp_path / "report.html")
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme=scheme,  # type: ignore[arg-type]
            has_touch=True,
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(file.as_uri())
        return opened

    yield open_it
    for context in contexts:
        context.close()
