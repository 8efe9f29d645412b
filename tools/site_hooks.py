"""Complete the site while MkDocs builds it: generated reference pages, equations as MathML, links to decisions.

MkDocs calls the functions `on_*` (`hooks` in mkdocs.yml).
"""

import re
import sys
from html import unescape
from pathlib import Path
from posixpath import relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from import_graph import sizes_table
from reference_pages import documented_rooms, reference_pages

API = "reference/api"
SIZES_MARK = "<!-- generated: sizes of the rooms -->"
DECISIONS = "decisions.md"

BLOCK_FORMULA = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
INLINE_FORMULA = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DECISION = re.compile(r"\bD([1-9]\d?)\b")
TAG = re.compile(r"(<[^>]+>)")
NO_LINKS_INSIDE = ("a", "code", "pre", "math", "h1", "h2", "h3", "h4", "script", "style", "svg")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the API page of every room into the navigation."""
    assert config.nav is not None
    reference = next(group["Reference"] for group in config.nav if "Reference" in group)
    pages = [{"Public names": f"{API}/index.md"}, *({room: f"{API}/{room}.md"} for room in documented_rooms())]
    reference.append({"API": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for address, markdown in reference_pages().items():
        files.append(File.generated(config, address, content=markdown))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the sizes of the rooms, which change with every commit."""
    return markdown.replace(SIZES_MARK, sizes_table()) if SIZES_MARK in markdown else markdown


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Turn formulas into MathML, which browsers draw by themselves, and D1, D2, ... into links."""
    html = BLOCK_FORMULA.sub(lambda found: convert(unescape(found[1]), display="block"), html)
    html = INLINE_FORMULA.sub(lambda found: convert(unescape(found[1])), html)
    if page.file.src_uri == DECISIONS:
        return html
    here = page.file.dest_uri.rpartition("/")[0]
    return link_decisions(html, relpath(DECISIONS.replace(".md", ".html"), here or "."))


def link_decisions(html: str, address: str) -> str:
    """Link each number of a decision in running text; headings, code and links stay as they are."""
    closed = 0  # open elements that take no links
    parts = TAG.split(html)
    for index, part in enumerate(parts):
        if not part.startswith("<"):
            if not closed:
                parts[index] = DECISION.sub(rf'<a href="{address}#d\1">D\1</a>', part)
            continue
        name = re.match(r"</?\s*([a-zA-Z0-9]+)", part)
        if name and name[1].lower() in NO_LINKS_INSIDE and not part.endswith("/>"):
            closed += -1 if part.startswith("</") else 1
    return "".join(parts)
