"""The direction of sight between rooms: what keeps the house easy to find one's way in."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import import_graph
from import_graph import SOURCE, imported_rooms, line_of, modules, room_of

FREE = {"__init__", "__main__"}  # the public names and the way in see everything

TESTS = Path(__file__).parent
ABOUT_NO_MODULE = {
    "attack": "bad inputs and kills",
    "integration": "what crosses commands",
    "recipes": "the data files of config/recipes",
    "losses/test_divided_references.py": "what losses do with references that several processes hold",
    "losses/test_extreme_inputs.py": "what every loss does with numbers at the edges",
    "losses/test_loss_contract.py": "what every loss promises",
    "reports/test_map_in_browser.py": "templates and scripts of a page",
    "reports/test_page_in_browser.py": "templates and scripts of a page",
    "serving/web/test_page_in_browser.py": "templates and scripts of a page",
    "test_architecture.py": "the rooms",
    "test_docs.py": "the documents",
    "test_packaging.py": "the wheel",
    "test_platforms.py": "macOS and Windows",
    "test_site.py": "the documents as a site",
    "test_tutorials.py": "the documents",
}
"""Tests, by file or folder, that mirror no module, and what they are about."""
TESTED_ELSEWHERE = {
    "__main__": "tests/test_cli.py starts it as a process",
}
"""Modules without a test file of their own, and the tests that would fail without them."""


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


PLAIN = {
    "collections",
    "contextlib",
    "dataclasses",
    "functools",
    "math",
    "typing",
}  # of the standard library, and no input or output


def test_pure_tensor_code_imports_torch_only():
    for path in (SOURCE / "functional").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                assert name.split(".")[0] in {"torch", "ccp_dml", *PLAIN}, name


def without_own_test():
    """Name the modules that no file of tests mirrors: a/b.py is tested in a/test_b.py."""
    names = [path.relative_to(SOURCE).with_suffix("") for path in modules() if path.stem != "__init__"]
    return {name.as_posix() for name in names if not (TESTS / name.parent / f"test_{name.name}.py").is_file()}


def test_every_module_has_a_test_of_its_name():
    missing = without_own_test()
    assert missing - TESTED_ELSEWHERE.keys() == set()
    assert TESTED_ELSEWHERE.keys() - missing == set(), "these have a test by now, or are gone"


def test_every_test_has_a_module_of_its_name():
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    modules_of = {file: SOURCE / file.parent / f"{file.stem.removeprefix('test_')}.py" for file in files}
    lonely = {file for file, module in modules_of.items() if not module.is_file()}
    explained = {file for file in lonely if {file.as_posix(), file.parts[0]} & ABOUT_NO_MODULE.keys()}
    assert lonely == explained
    assert ABOUT_NO_MODULE.keys() <= {name for file in lonely for name in (file.as_posix(), file.parts[0])}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_docstring_begins_with_one_line_that_is_a_sentence(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    for text in filter(None, map(ast.get_docstring, found)):
        first = text.split("\n\n")[0]
        assert "\n" not in first, first
        assert first.endswith((".", "?", ":", '"')), first
