"""The documents as a site: it builds without a warning, asks nothing of the network, and can be read and searched."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ccp_dml.config.layers import known_keys
from ccp_dml.config.recipes import shipped_recipes

pytest.importorskip("material", reason="the site needs the extra [docs]")

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE)
LINKED = re.compile(r"<link\b[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE)
STYLED = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert built.returncode == 0, built.stdout + built.stderr
    assert built.stderr == ""
    return folder


def test_nothing_is_loaded_from_elsewhere(site):
    outside = {
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*")
        if path.suffix in {".html", ".css"}
        for pattern in (LOADED, LINKED, STYLED)
        for address in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert outside == set()
    assert (site / "search" / "search_index.js").exists()


def test_the_patterns_find_what_they_look_for():
    assert LOADED.findall('<script async src="https://unpkg.com/x"></script>') == ["https://unpkg.com/x"]
    assert LINKED.findall('<link rel=stylesheet href="//fonts.googleapis.com/css">') == ["//fonts.googleapis.com/css"]
    assert STYLED.findall("@font-face{src:url('https://a.org/b.woff2')}") == ["https://a.org/b.woff2"]


def test_every_key_has_its_line_and_its_meaning(site):
    page = (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    for key in known_keys():
        row = re.search(rf"<td><code>{re.escape(key)}</code></td>(.*?)</tr>", page, re.DOTALL)
        assert row, key
        meaning = re.findall(r"<td>(.*?)</td>", row[1], re.DOTALL)[0]
        assert len(meaning) > 1, f"{key} has no description in config/schema.py"


def test_every_recipe_is_shown(site):
    page = (site / "reference" / "recipes.html").read_text(encoding="utf-8")
    for name in shipped_recipes():
        assert re.search(rf"<h3 id=\"[^\"]*\">{re.escape(name)}<a", page), name


def test_numbers_of_decisions_lead_to_them(site):
    decisions = (site / "decisions.html").read_text(encoding="utf-8")
    last = max(map(int, re.findall(r'id="d(\d+)"', decisions)))
    assert f'decisions.html#d{last}">D{last}</a>' in (site / "reference" / "configuration.html").read_text("utf-8")
    linked = {
        number
        for path in site.rglob("*.html")
        for number in re.findall(r"decisions\.html#(d\d+)\"", path.read_text(encoding="utf-8"))
    }
    assert {"d1", "d14", "d28"} <= linked
    for number in linked:
        assert f'id="{number}"' in decisions, number


def test_formulas_are_drawn_without_a_script(site):
    page = (site / "algorithm.html").read_text(encoding="utf-8")
    assert page.count("<math") > 10
    assert "arithmatex" not in page


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_in_both_schemes(site, browser, artefacts, scheme, width):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in ("index", "results", "algorithm", "rooms", "reference/configuration", "tutorials/own_loop"):
        page.goto((site / f"{name}.html").as_uri())
        page.screenshot(path=artefacts(f"site-{name.replace('/', '-')}-{scheme}-{width}.png"), full_page=width < 500)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"
    page.close()
    assert complaints == []
    assert [address for address in requests if not address.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.browser
def test_search_works_from_the_file_system(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.click("input[data-md-component=search-query]")
    page.keyboard.type("covering radius")
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert "covering" in page.inner_text(".md-search-result__list").lower()
    page.close()
