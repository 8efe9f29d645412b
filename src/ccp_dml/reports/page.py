"""The HTML report: one self-contained page about one run, or about several compared."""

import base64
import dataclasses
import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ccp_dml.errors import UserError
from ccp_dml.files import file_in_the_way, write_text
from ccp_dml.reports import curve_sections, formats, sections
from ccp_dml.reports.certificate_section import certificate
from ccp_dml.reports.confusion_sections import confusion
from ccp_dml.reports.cost_sections import cost
from ccp_dml.reports.gallery_sections import gallery, shared_gallery, shared_queries, with_gallery
from ccp_dml.reports.map_sections import embedding_maps
from ccp_dml.reports.run_folder import RunFolder, read_runs, run_labels
from ccp_dml.reports.sections import Section

HERE = Path(__file__).parent
STYLES = ("report.css", "map.css", "confusion.css")
SCRIPTS = ("report.js", "map.js")


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of the run folders `runs` to the file `out`, whole or not at all; the file's path."""
    out = page_file(out)
    write_text(out, render(read_runs(runs)))
    return out


def write_report_of(run: Path, result: dict[str, Any]) -> None:
    """Write the report of a run whose `result` is not in its folder yet: a folder with a result is complete."""
    write_text(run / "report.html", render([dataclasses.replace(RunFolder.read(run), result=result)]))


def page_file(out: Path) -> Path:
    """`out` as the file to write a page to."""
    if Path(out).is_dir():
        raise UserError(
            f"{out} is a folder; give the file that the report is to be written to, such as {out / 'report.html'}."
        )
    if (file := file_in_the_way(Path(out))) is not None:
        raise UserError(f"{out} cannot be written, because {file} is a file; give --out another place.")
    return Path(out)


def render(runs: Sequence[RunFolder]) -> str:
    """The whole page about runs as text."""
    title = " and ".join(run_labels(runs)) if len(runs) < 4 else f"{len(runs)} runs"
    if len(runs) == 1:
        return fill(title, "Training report", sections_of_one(runs[0]))
    return fill(title, f"Comparison of {len(runs)} runs", sections_of_many(runs))


def fill(title: str, kind: str, sections: Sequence[Section]) -> str:
    """A page of the given sections as text; `kind` says what it is a report of."""
    jinja = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(formats.FILTERS)
    script = _joined(SCRIPTS)
    return jinja.get_template("report.html").render(
        title=title,
        kind=kind,
        sections=sections,
        style=Markup(_joined(STYLES)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=version("ccp-dml"),
    )


def sections_of_one(run: RunFolder) -> list[Section]:
    return present(
        sections.summary(run),
        curve_sections.curves([run]),
        curve_sections.projections([run]),
        curve_sections.problems(run),
        embedding_maps([run]),
        gallery(run),
        confusion(run),
        certificate(run),
        sections.scores(run),
        cost([run]),
        sections.configuration(run),
        sections.environment(run),
        sections.reproduction(run),
    )


def sections_of_many(runs: Sequence[RunFolder]) -> list[Section]:
    shared = shared_queries(runs)
    places_shown = [place for place, _ in with_gallery(runs)]
    compared = present(
        sections.comparison(runs),
        curve_sections.curves(runs),
        curve_sections.projections(runs),
        embedding_maps(runs),
        shared_gallery(runs),
        cost(runs),
    )
    for place, (run, label) in enumerate(zip(runs, run_labels(runs), strict=True)):
        parts = present(
            sections.summary(run),
            curve_sections.problems(run),
            gallery(run, leave_out=shared) if place in places_shown else None,
            confusion(run) if place in places_shown else None,
            certificate(run),
            sections.scores(run),
            sections.configuration(run),
            sections.environment(run),
            sections.reproduction(run),
        )
        prefixed = [dataclasses.replace(part, id=f"run-{place + 1}-{part.id}") for part in parts]
        content = {"sections": prefixed, "style": place, "finished": run.finished}
        compared.append(Section(f"run-{place + 1}", f"Run: {label}", "section_run.html", content))
    return compared


def present(*parts: Section | None) -> list[Section]:
    return [part for part in parts if part is not None]


def _joined(files: Sequence[str]) -> str:
    return "\n".join((HERE / file).read_text(encoding="utf-8") for file in files)
