"""The direction of sight between rooms: what keeps the house easy to find one's way in."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import import_graph
from import_graph import SOURCE, imported_rooms, line_of, modules, room_of

FREE = {"__init__", "__main__"}  # the public names and the way in see everything


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_rooms_to_its_left(path):
    if room_of(path) in FREE:
        return
    own = line_of(room_of(path))
    assert own is not None, f"{room_of(path)} stands in no line of tools/import_graph.py"
    wrong = [room for room in imported_rooms(path) if (line := line_of(room)) is None or line >= own]
    assert not wrong, f"{path.relative_to(SOURCE)} must not import {sorted(wrong)}"


def test_every_room_with_a_rule_exists():
    assert set().union(*import_graph.LINES) <= {room_of(path) for path in modules()} | {"serving"}


def test_every_room_says_what_it_is_for():
    assert set().union(*import_graph.LINES) == set(import_graph.ROOM_PURPOSES)


def test_the_drawing_of_the_rooms_is_up_to_date():
    page = import_graph.PAGE.read_text(encoding="utf-8")
    remedy = "run: python tools/import_graph.py --write"
    assert import_graph.with_graph(page) == page, remedy
    assert import_graph.as_svg() == import_graph.DRAWING.read_text(encoding="utf-8"), remedy


def test_no_room_is_a_corridor():
    folders = [path.parent for path in modules() if path.stem != "__init__"]
    crowded = {str(folder.relative_to(SOURCE)) for folder in folders if folders.count(folder) > 16}
    assert not crowded


def test_pure_tensor_code_imports_torch_only():
    for path in (SOURCE / "functional").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                assert name.split(".")[0] in {"torch", "ccp_dml", "collections", "dataclasses", "typing", "math"}, name
