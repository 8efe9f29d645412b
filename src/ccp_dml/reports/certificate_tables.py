"""A certificate on the terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ccp_dml.reports import certificate_text
from ccp_dml.reports.certificate_text import Certificate


def certificate_tables(certificate: Certificate) -> Iterator[RenderableType]:
    """Sentences and tables, in the order in which to print them."""
    yield Text(certificate_text.constraint_text(certificate))
    yield _violations(certificate)
    yield Text(certificate_text.threshold_text(certificate))
    yield _covering(certificate)
    for note in certificate_text.notes(certificate):
        yield Text(f"- {note}")


def _violations(certificate: Certificate) -> Table:
    table = Table(title="Pairs on the wrong side of beta (%)")
    table.add_column("pairs of")
    table.add_column("kind")
    columns = ("estimate", "further images", "n", "further classes", "n", "Markov bound", "loose by")
    for title in columns:
        table.add_column(title, justify="right")
    last = None
    for row in certificate_text.violation_rows(certificate):
        if last not in (None, row.group):
            table.add_section()
        numbers = (
            row.estimate,
            row.of_images,
            row.image_pairs,
            row.of_classes,
            row.class_pairs,
            row.bound,
            row.looseness,
        )
        table.add_row("" if row.group == last else row.group, row.kind, *numbers)
        last = row.group
    return table


def _covering(certificate: Certificate) -> Table:
    table = Table(title="Radius that covers a class")
    for title in ("classes", "covered by", "n", "mean", "largest"):
        table.add_column(title, justify="right" if title in ("n", "mean") else "left")
    for row in certificate_text.covering_rows(certificate):
        table.add_row(row.group, row.centres, row.classes, row.mean, Text(row.worst))  # names are text, not markup
    return table
