"""Draw which room of the package imports which, from the imports of every module.

`python tools/import_graph.py` prints the graph as Mermaid, `--write` puts it into docs/rooms.md. The test of the
direction of sight (tests/test_architecture.py) reads the same graph.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "ccp_dml"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE
PAGE = Path(__file__).parents[1] / "docs" / "rooms.md"
BEGIN, END = "<!-- import graph: begin -->", "<!-- import graph: end -->"

# One direction of sight: a room imports only rooms of earlier lines. Rooms of one line do not see each other.
LINES: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in """
    errors
    foundation functional
    proxies
    losses models data certificate
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


def as_mermaid() -> str:
    """Draw each room above those it imports; errors and foundation, which all import, are left out."""
    shown = {pair: count for pair, count in edges().items() if not {*pair} & {"__init__", "errors", "foundation"}}
    rows = [f"    {one} -->|{count}| {other}" for (one, other), count in sorted(shown.items())]
    return "\n".join(["```mermaid", "graph TD", *rows, "```"])


def with_graph(page: str) -> str:
    """Put the present graph between the two marks of a page."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{as_mermaid()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_graph(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(as_mermaid())
