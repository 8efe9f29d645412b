"""Every file name of a folder stands in one place."""

import ast
from functools import cache
from pathlib import Path

import pytest

import ccp_dml
from ccp_dml.records import layout

PACKAGE = Path(ccp_dml.__file__).parent
NAMES = {value: name for name, value in vars(layout).items() if name.isupper() and "." in value}


@cache
def strings(module: Path) -> set[str]:
    """Every string constant of a module except for docstrings, f-strings in their parts."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_stands_in_the_layout_only(name: str) -> None:
    templates = {"report.html", "study.html"}  # are also templates of pages
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if name in strings(path)}
    allowed = {"reports/page.py", "reports/study.py"} if name in templates else set()
    assert found - allowed == {"records/layout.py"}


def test_files_with_a_number_or_a_name_in_them() -> None:
    folder = Path("x")
    assert layout.map_file(folder, 7) == folder / "problems" / "007.safetensors"
    assert layout.timing_file(folder, "c2") == folder / "timing-c2.json"
    assert (
        layout.geometry_file(folder, "before training", 1)
        == folder / "geometry" / "before-training-repeat1.safetensors"
    )
    assert layout.figure_file(folder, "curves") == folder / "curves.png"
