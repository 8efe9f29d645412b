"""Write what a study leaves for its readers: a table, pictures, a summary, and a page to explore offline."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ccp_dml.errors import UserError
from ccp_dml.foundation.files import as_csv, write_text
from ccp_dml.records import layout
from ccp_dml.reports.figures.figure import Figure
from ccp_dml.reports.figures.interactive import plotly_panel
from ccp_dml.reports.figures.picture import write_picture
from ccp_dml.reports.page import content_of, fill_template

STYLES = ("report.css", "study.css")
SCRIPTS = ("study.js",)


@dataclass(frozen=True)
class StudyReport:
    """Everything that is to be said about a study."""

    title: str
    question: str
    paragraph: str
    notes: Sequence[str]
    figures: Sequence[Figure]
    rows: Sequence[dict[str, Any]]  # all with the same keys, in the same order
    command: str  # repeats the study

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0])


def write_study_report(folder: Path, report: StudyReport) -> Path:
    """Write table, pictures, summary and page into `folder`, and return the path of the page."""
    try:
        write_text(folder / layout.RESULTS, as_csv(report.columns, report.rows))
        pictures = {one.name: write_picture(layout.figure_file(folder, one.name), one) for one in report.figures}
        write_text(folder / layout.SUMMARY, as_markdown(report))
        embedded = {name: data_uri(path) for name, path in pictures.items()}
        write_text(folder / layout.STUDY_PAGE, render(report, embedded))
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror or error}); make room there, then repeat the command: runs "
            "that are done stay done."
        ) from None
    return folder / layout.STUDY_PAGE


def as_markdown(report: StudyReport) -> str:
    """Make the summary: text and links to the pictures."""
    parts = [f"# {report.title}", report.question, report.paragraph, *report.notes]
    parts += [f"![{figure.title}]({figure.name}.png)\n\n{figure.caption}" for figure in report.figures]
    return "\n\n".join(parts) + f"\n\nNumbers: {layout.RESULTS}. Do it again:\n\n    {report.command}\n"


def render(report: StudyReport, pictures: dict[str, str]) -> str:
    """Make the whole page. `pictures` are the figures' PNGs as data URIs, for readers without scripts."""
    places = {"summary": "Summary", **{figure.name: figure.title for figure in report.figures}}
    places |= {"numbers": "Numbers", "reproduce": "How to reproduce"}
    content = {
        "title": report.title,
        "kind": "Study",
        "sections": [{"id": place, "title": title} for place, title in places.items()],
        "report": report,
        "pictures": pictures,
        "panels": {
            figure.name: [json_in_page(plotly_panel(panel)) for panel in figure.panels] for figure in report.figures
        },
    }
    return fill_template("study.html", STYLES, [get_plotlyjs(), content_of(SCRIPTS)], content)


def json_in_page(value: Any) -> Markup:
    """Write JSON that may stand in a page: no `<` in it can end the element that holds it."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


def data_uri(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
