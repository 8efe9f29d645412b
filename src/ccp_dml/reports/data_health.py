"""Show what was found in a data set: as a table and sentences for the terminal, and as a page."""

from rich.table import Table
from rich.text import Text

from ccp_dml.data.files.health import DataHealth
from ccp_dml.errors import listing
from ccp_dml.reports.page import fill
from ccp_dml.reports.sections.section import Section

NAMES_SHOWN = 50
"""Names per finding on the page."""


def health_table(health: DataHealth) -> Table:
    """Make the table of both halves."""
    table = Table(title=f"{health.source}", title_justify="left")
    table.add_column("half")
    for title in ("classes", "images", "smallest class", "median", "largest"):
        table.add_column(title, justify="right")
    for half, one in health.halves.items():
        numbers = (one.classes, one.images, one.smallest, one.middle, one.largest)
        table.add_row(Text(half), *(f"{number:,g}" for number in numbers))
    return table


def health_sentences(health: DataHealth) -> list[str]:
    """Say what was found, the worst first, with a few names each."""
    least, middle, most = health.sides
    return [
        *(f"{finding.sentence}: {listing(finding.names, limit=3)}" for finding in health.findings),
        *health.notes,
        f"The short side of images is {least} to {most} pixels, {middle:g} in the median.",
    ]


def health_page(health: DataHealth) -> str:
    """Make a self-contained page with all findings."""
    content = {"halves": health.halves, "sentences": health_sentences(health)}
    overview = Section("overview", "Overview", "section_data_health.html", content)
    details = [
        Section(
            f"finding-{number}",
            finding.sentence,
            "section_names.html",
            {"names": finding.names[:NAMES_SHOWN], "more": max(0, len(finding.names) - NAMES_SHOWN)},
        )
        for number, finding in enumerate(health.findings)
    ]
    return fill(health.source, "Data check", [overview, *details])
