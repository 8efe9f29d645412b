"""Read which room of the package imports which, from the imports of every module; draw it, count it, check it.

    python tools/import_graph.py            prints the sizes of the rooms and who imports whom
    python tools/import_graph.py --write    brings docs/rooms.md and docs/assets/rooms.svg up to date

The test of the direction of sight (tests/test_architecture.py) reads the same graph and fails when the
drawing is stale.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = "ccp_dml"
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / PACKAGE
PAGE = ROOT / "docs" / "rooms.md"
DRAWING = ROOT / "docs" / "assets" / "rooms.svg"
BEGIN, END = "<!-- import graph: begin -->", "<!-- import graph: end -->"

# One direction of sight: a room imports only rooms of earlier lines. Rooms of one line do not see each other.
LINES: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in """
    errors
    foundation functional
    proxies pace
    losses models data certificate objectives
    trainer evaluation
    projections
    config
    records
    reports
    runs
    plans
    benchmark studies serving
    commands
    cli
    """.strip().splitlines()
)

ROOM_PURPOSES = {
    "projections": "The paper: Algorithm 1, the proximal pull.",
    "proxies": "The paper: class proxies, the pool, Algorithm 2.",
    "objectives": "What a step minimises: the loss inside the batch, against proxies, or both in balance.",
    "pace": "When a problem ends: patience, steps, or stale proxies.",
    "trainer": "One training step, one problem.",
    "evaluation": "Embed a data set and score it.",
    "errors": "A user's mistake, and a number that is not finite.",
    "foundation": "Atomic files, locks, digests, seeds, checkpoints, a stopwatch.",
    "functional": "Pure tensor code: distances, k-center, geometry, retrieval.",
    "losses": "One file per loss; the memory of past batches; mixtures; the adapter to pytorch-metric-learning.",
    "models": "Backbones, the embedding head, reading weights.",
    "data": "Data sets, splits, sampling, loading; `files/` reads images, `published/` has the data sets of the paper.",
    "certificate": "What can be promised of distances: statistics on embeddings, without files.",
    "config": "The schema, layers of settings, recipes by name.",
    "records": "What is on disk and nothing else: every file name and format stands here once.",
    "reports": "Pages made from records; `sections/` has one file per section, `figures/` draws.",
    "runs": "One run from configuration to report.",
    "plans": "Many runs: plan, rehearsal, workers.",
    "benchmark": "Protocols, results, tables beside the paper's numbers.",
    "studies": "One file per question that the paper asks besides its tables.",
    "serving": "A trained network at work: embed, index, search, serve.",
    "commands": "One file per command, and what they print.",
    "cli": "Which commands there are, and how a failure becomes an exit code.",
}
"""Every room in the order of reading: the paper first, then left to right."""

PAPER = {"projections", "proxies", "pace", "objectives", "trainer", "evaluation"}
SEEN_BY_ALL = {"__init__", "__main__", "errors", "foundation"}
"""Left out of the drawing: who sees everything, and who is seen by everything."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Name the room of a module: the first folder below the package, or the module itself."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_names(path: Path) -> Iterator[str]:
    """Name everything of the package that a module imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == PACKAGE:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_rooms(path: Path) -> set[str]:
    """Name the other rooms that a module imports."""
    return {name.split(".")[1] for name in imported_names(path) if "." in name} - {room_of(path)}


def edges() -> dict[tuple[str, str], int]:
    """Count the modules of the first room that import the second."""
    counts: dict[tuple[str, str], int] = {}
    for path in modules():
        for room in imported_rooms(path):
            counts[room_of(path), room] = counts.get((room_of(path), room), 0) + 1
    return counts


def line_of(room: str) -> int | None:
    return next((number for number, line in enumerate(LINES) if room in line), None)


def sizes() -> dict[str, tuple[int, int]]:
    """Count the modules and lines of each room; empty modules do not count."""
    counts: dict[str, tuple[int, int]] = {}
    for path in modules():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines:
            files, total = counts.get(room_of(path), (0, 0))
            counts[room_of(path)] = (files + 1, total + lines)
    return counts


def sizes_table() -> str:
    """Write the sizes of the rooms as a Markdown table, in the order of reading."""
    counted = sizes()
    rows = [
        f"| `{room}` | {counted[room][0]} | {counted[room][1]:,} | {purpose} |"
        for room, purpose in ROOM_PURPOSES.items()
        if room in counted
    ]
    files, lines = (sum(column) for column in zip(*counted.values(), strict=True))
    heading = ["| room | modules | lines | what it is for |", "|---|---:|---:|---|"]
    return "\n".join([*heading, *rows, f"| all | {files} | {lines:,} | |"])


def imports_table() -> str:
    """Write who imports whom as a Markdown table, a row per room."""
    seen: dict[str, set[str]] = {}
    for one, other in edges():
        seen.setdefault(one, set()).add(other)
    rows = [
        f"| `{room}` | {', '.join(f'`{other}`' for other in by_line(seen[room]))} |"
        for room in by_line(seen)
        if line_of(room) is not None
    ]
    return "\n".join(["| room | imports |", "|---|---|", *rows])


def by_line(rooms: Iterable[str]) -> list[str]:
    """Sort rooms left to right, as their lines stand."""
    return sorted(rooms, key=lambda room: (-1 if (line := line_of(room)) is None else line, room))


def direct_edges() -> set[tuple[str, str]]:
    """Leave out the edges that longer ways imply, and the rooms that everybody imports."""
    shown = {pair for pair in edges() if not {*pair} & SEEN_BY_ALL}
    seen: dict[str, set[str]] = {}
    for one, other in shown:
        seen.setdefault(one, set()).add(other)

    def reachable(room: str) -> set[str]:
        nearest = seen.get(room, set())
        return nearest.union(*(reachable(other) for other in nearest))

    return {
        (one, other) for one, other in shown if not any(other in reachable(between) for between in seen[one] - {other})
    }


BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 112, 30, 28, 34, 12


def as_svg() -> str:
    """Draw the rooms in lines, those that import above those that are imported."""
    pairs = direct_edges()
    rooms = {room for pair in pairs for room in pair}
    lines = [by_line(rooms & line) for line in reversed(LINES) if rooms & line]
    width = max(len(line) for line in lines) * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    height = len(lines) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    place: dict[str, tuple[float, float]] = {}  # middle of a room's upper edge
    for row, line in enumerate(lines):
        for column, room in enumerate(line):
            x = width / 2 + (column - (len(line) - 1) / 2) * (BOX_WIDTH + GAP_X)
            place[room] = (x, MARGIN + row * (BOX_HEIGHT + GAP_Y))
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Which room of the code imports which</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#7a85a8"/></marker></defs>',
    ]
    for one, other in sorted(pairs):
        (x1, y1), (x2, y2) = place[one], place[other]
        y1 += BOX_HEIGHT
        bend = (y2 - y1) / 2
        drawn.append(
            f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2 - 1:g}" fill="none" '
            'stroke="#7a85a8" stroke-width="1.3" marker-end="url(#tip)"/>'
        )
    for room, (x, y) in sorted(place.items()):
        colour = "#f2c572" if room in PAPER else "#c9d3f0"
        drawn += [
            f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
            f'fill="{colour}"/>',
            f'<text x="{x:g}" y="{y + 20:g}" text-anchor="middle" fill="#1b2340">{room}</text>',
        ]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def with_graph(page: str) -> str:
    """Put the drawing and the table of imports between the two marks of a page."""
    before, rest = page.split(BEGIN)
    graph = f"![Which room of the code imports which](assets/{DRAWING.name})\n\n{imports_table()}"
    return f"{before}{BEGIN}\n{graph}\n{END}{rest.split(END)[1]}"


def write() -> None:
    DRAWING.write_text(as_svg(), encoding="utf-8")
    PAGE.write_text(with_graph(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    else:
        print(sizes_table(), imports_table(), sep="\n\n")
