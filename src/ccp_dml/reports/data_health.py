"""Show what was found in a data set: as a table for the terminal, and as a page."""

from html import escape

from rich.table import Table
from rich.text import Text

from ccp_dml.data.health import DataHealth
from ccp_dml.errors import listing

SHOWN = 50  # names per list on the page

STYLE = (
    "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "td,th{padding:.2rem .8rem;text-align:right}"
)


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
    examples = {
        "images cannot be read": [f"{name} ({why})" for name, why in health.broken.items()],
        "test images are copies of training images": [f"{test} of {train}" for test, train in health.leaked],
        "groups of equal files have different classes": [" = ".join(group) for group in health.copies_across_classes],
        "classes have fewer": health.small_classes,
        "images have a side": health.tiny,
        "groups of equal files are": [" = ".join(group) for group in health.copies],
    }
    sentences = []
    for sentence in [*health.problems, *health.remarks]:
        names = next((names for start, names in examples.items() if start in sentence), [])
        sentences.append(f"{sentence}: {listing(names, limit=3)}" if names else sentence)
    least, middle, most = health.sides
    sentences.append(f"The short side of images is {least} to {most} pixels, {middle:g} in the median.")
    return sentences


def health_page(health: DataHealth) -> str:
    """Make a self-contained page with all findings."""
    rows = "".join(
        f"<tr><th>{escape(half)}</th><td>{one.classes}</td><td>{one.images}</td><td>{one.smallest}</td>"
        f"<td>{one.middle:g}</td><td>{one.largest}</td></tr>"
        for half, one in health.halves.items()
    )
    lists = {
        "Images that cannot be read": [f"{name}: {why}" for name, why in health.broken.items()],
        "Test images that are copies of training images": [f"{test} of {train}" for test, train in health.leaked],
        "Equal files with different classes": [" = ".join(group) for group in health.copies_across_classes],
        "Equal files": [" = ".join(group) for group in health.copies],
        "Classes with few images": health.small_classes,
        "Very small images": health.tiny,
    }
    parts = "".join(
        f"<h2>{escape(title)} ({len(names)})</h2><ul>"
        + "".join(f"<li>{escape(name)}</li>" for name in names[:SHOWN])
        + (f"<li>and {len(names) - SHOWN} more</li>" if len(names) > SHOWN else "")
        + "</ul>"
        for title, names in lists.items()
        if names
    )
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in health_sentences(health))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(health.source)}</title><style>{STYLE}</style></head><body><h1>{escape(health.source)}</h1>"
        "<table><tr><th>half</th><th>classes</th><th>images</th><th>smallest class</th><th>median</th><th>largest</th>"
        f"</tr>{rows}</table><ul>{said}</ul>{parts}</body></html>\n"
    )
