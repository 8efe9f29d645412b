"""Write the HTML report: one self-contained page about one run, or comparing several."""

import base64
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ccp_dml.errors import UserError
from ccp_dml.foundation.files import as_utf8, file_in_the_way, write_text
from ccp_dml.records import layout
from ccp_dml.records.run_folder import RunFolder, read_runs, run_labels
from ccp_dml.reports import words
from ccp_dml.reports.figures import palette
from ccp_dml.reports.sections import curves, overview
from ccp_dml.reports.sections.certificate import certificate
from ccp_dml.reports.sections.cost import cost
from ccp_dml.reports.sections.embedding_map import embedding_maps
from ccp_dml.reports.sections.gallery import confusion, gallery, shared_gallery, shared_queries, with_gallery
from ccp_dml.reports.sections.section import Section, present

TEMPLATES = Path(__file__).parent / "templates"
STYLES = ("report.css", "map.css", "confusion.css")
SCRIPTS = ("report.js", "map.js")

PAGE_START = 2000  # bytes that hold the head of a page


def write_report(runs: Sequence[Path], out: Path, *, force: bool = False) -> Path:
    """Write the report of the run folders `runs` to the file `out`, and return its path; see `page_file`."""
    out = page_file(out, force=force)
    write_text(out, render(read_runs(runs)))
    return out


def write_report_of(run: Path, result: dict[str, Any]) -> None:
    """Write the report of a run whose `result` is not in its folder yet: a folder with a result is complete."""
    write_text(run / layout.REPORT, render([dataclasses.replace(RunFolder.read(run), result=result)]))


def page_file(out: Path, *, force: bool = False, option: str = "--out") -> Path:
    """Check that a page can be written to the file `out`, and return its path.

    A link and anything else that is no regular file is never replaced, another program's file only with `force`.
    `option` is what the file was named with, for messages.
    """
    if out.is_symlink():
        raise UserError(f"{out} is a link; give {option} the file that it leads to, or another place.")
    if out.is_dir():
        raise UserError(
            f"{out} is a folder; give {option} the file that the page is to be written to, such as "
            f"{out / layout.REPORT}."
        )
    if out.exists() and not out.is_file():
        raise UserError(f"{out} is no regular file; give {option} another place.")
    if out.exists() and not force and not is_page(out):
        raise UserError(f"{out} is there already and is no page of ccp-dml; --force replaces it.")
    if (file := file_in_the_way(out)) is not None:
        raise UserError(f"{out} cannot be written, because {file} is a file; give {option} another place.")
    return out


def is_page(file: Path) -> bool:
    """Tell whether a file is empty or begins as the pages of this package do, those of older versions, too."""
    with file.open("rb") as content:
        start = content.read(PAGE_START)
    return not start or (b"<html" in start[:200].lower() and b"default-src 'none'" in start)


def render(runs: Sequence[RunFolder]) -> str:
    """Make the whole page about `runs`."""
    title = " and ".join(run_labels(runs)) if len(runs) < 4 else f"{len(runs)} runs"
    if len(runs) == 1:
        return fill(title, "Training report", sections_of_one(runs[0]))
    return fill(title, f"Comparison of {len(runs)} runs", sections_of_many(runs))


def fill(title: str, kind: str, sections: Sequence[Section]) -> str:
    """Make a page of the given sections; `kind` stands above the title and says what is reported."""
    return fill_template(
        "report.html", STYLES, [content_of(SCRIPTS)], {"title": title, "kind": kind, "sections": sections}
    )


def fill_template(name: str, styles: Sequence[str], scripts: Sequence[str], content: Mapping[str, Any]) -> str:
    """Make a self-contained page: nothing is left out silently, and names are text, not markup.

    `styles` are files of the templates' folder, `scripts` the code itself.
    """
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update({**words.FILTERS, "script_hash": script_hash})
    return as_utf8(
        jinja.get_template(name).render(
            content,
            style=Markup(palette.css() + content_of(styles)),
            scripts=[Markup(script) for script in scripts],
            version=version("ccp-dml"),
        )
    )


def content_of(files: Sequence[str]) -> str:
    """Join style sheets or scripts of the templates' folder."""
    return "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in files)


def script_hash(script: str) -> str:
    """Compute what a page's policy names a script by, so that no other script runs."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def sections_of_one(run: RunFolder) -> list[Section]:
    """Make the sections of the page about one run, in their order."""
    return present(
        overview.summary(run),
        overview.advice(run),
        curves.curves([run]),
        curves.projections([run]),
        curves.problems(run),
        embedding_maps([run]),
        gallery(run),
        confusion(run),
        certificate(run),
        overview.scores(run),
        cost([run]),
        overview.configuration(run),
        overview.environment(run),
        overview.reproduction(run),
    )


def sections_of_many(runs: Sequence[RunFolder]) -> list[Section]:
    """Make the sections that compare runs, then one section per run."""
    shared = shared_queries(runs)
    places_shown = [place for place, _ in with_gallery(runs)]
    compared = present(
        overview.comparison(runs),
        curves.curves(runs),
        curves.projections(runs),
        embedding_maps(runs),
        shared_gallery(runs),
        cost(runs),
    )
    for place, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True)):
        parts = present(
            overview.summary(run),
            overview.advice(run),
            curves.problems(run),
            gallery(run, leave_out=shared) if place in places_shown else None,
            confusion(run) if place in places_shown else None,
            certificate(run),
            overview.scores(run),
            overview.configuration(run),
            overview.environment(run),
            overview.reproduction(run),
        )
        prefixed = [dataclasses.replace(part, id=f"run-{place + 1}-{part.id}") for part in parts]
        content = {"sections": prefixed, "style": place, "finished": run.finished}
        compared.append(Section(f"run-{place + 1}", f"Run: {label}", "section_run.html", content))
    return compared
