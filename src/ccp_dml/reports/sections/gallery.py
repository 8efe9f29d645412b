"""The sections with test images: queries with their neighbours, of one run or compared, and confused classes."""

from collections.abc import Sequence
from typing import Any

from ccp_dml.records.run_folder import RunFolder, run_labels
from ccp_dml.reports.sections.section import Section

MOST_GALLERIES = 4  # further runs are compared by numbers only, so that the page stays light
OPEN_COMPARISONS = 5  # queries compared at once; the rest unfolds
REASONS = {"worst": "Worst queries", "best": "Best queries", "random": "Queries drawn at random"}

Query = dict[str, Any]
Identity = tuple[Any, ...]


def gallery(run: RunFolder, leave_out: Sequence[Identity] = ()) -> Section | None:
    """Show the run's queries with their neighbours, except those in `leave_out`; None where none is left."""
    queries = [query for key, query in _queries(run).items() if key not in leave_out]
    groups = {title: [query for query in queries if query["chosen"] == reason] for reason, title in REASONS.items()}
    shown = {title: members for title, members in groups.items() if members}
    if run.gallery is None or not shown:
        return None
    content = {"groups": shown, "candidates": run.gallery["candidates"]}
    return Section("gallery", "Retrieval gallery", "section_gallery.html", content)


def shared_gallery(runs: Sequence[RunFolder]) -> Section | None:
    """Show the queries that all galleries have; those whose average precision differs most come first."""
    shown = with_gallery(runs)
    labels = run_labels(runs)
    rows = [
        [{"label": labels[style], "style": style, "query": _queries(run)[key]} for style, run in shown]
        for key in shared_queries(runs)
    ]
    if not rows:
        return None
    rows.sort(key=_change, reverse=True)
    content = {"rows": rows, "open": OPEN_COMPARISONS}
    return Section("gallery", "Queries compared", "section_shared_gallery.html", content)


def shared_queries(runs: Sequence[RunFolder]) -> list[Identity]:
    """Find the queries that every gallery has; none where there is only one gallery."""
    shown = [run for _, run in with_gallery(runs)]
    if len(shown) < 2:
        return []
    return [key for key in _queries(shown[0]) if all(key in _queries(run) for run in shown[1:])]


def with_gallery(runs: Sequence[RunFolder]) -> list[tuple[int, RunFolder]]:
    """Choose the runs whose galleries the page shows, each with its place among `runs`."""
    return [(place, run) for place, run in enumerate(runs) if run.gallery is not None][:MOST_GALLERIES]


def _queries(run: RunFolder) -> dict[Identity, Query]:
    """List the gallery's queries by row, class and name: the row alone could be one of other data."""
    return {(query["row"], query["class"], query["name"]): query for query in (run.gallery or {}).get("queries", [])}


def _change(answers: Sequence[dict[str, Any]]) -> float:
    precision = [answer["query"]["average_precision"] for answer in answers]
    return max(precision) - min(precision)


def confusion(run: RunFolder) -> Section | None:
    """Show the most confused pairs of classes with their closest images, and a matrix of these classes."""
    if run.confusion is None or not run.confusion["pairs"]:
        return None
    matrix = run.confusion["matrix"]
    others = [share for row, shares in enumerate(matrix) for column, share in enumerate(shares) if row != column]
    content = {
        "pairs": run.confusion["pairs"],
        "classes": run.confusion["classes"],
        "matrix": matrix,
        # The colour scale spans confusions only: a class that finds itself has a colour of its own.
        "darkest": max(others, default=0.0) or 1.0,
    }
    return Section("confusion", "Confusion between classes", "section_confusion.html", content)
