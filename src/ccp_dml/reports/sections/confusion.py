"""Which classes the network takes for each other, on the page."""

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.sections.overview import Section


def confusion(run: RunFolder) -> Section | None:
    """The most confused pairs with their closest images, and the shares among the classes concerned."""
    if run.confusion is None or not run.confusion["pairs"]:
        return None
    matrix = run.confusion["matrix"]
    others = [share for row, shares in enumerate(matrix) for column, share in enumerate(shares) if row != column]
    content = {
        "pairs": run.confusion["pairs"],
        "classes": run.confusion["classes"],
        "matrix": matrix,
        "darkest": max(others, default=0.0) or 1.0,  # colours span what is confused: who finds itself has its own
    }
    return Section("confusion", "Confusion between classes", "section_confusion.html", content)
