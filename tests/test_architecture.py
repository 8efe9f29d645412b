"""Imports point one way, and files stay small: what keeps the house easy to find one's way in."""

import ast
from pathlib import Path

import pytest

import ccp_dml

SOURCE = Path(ccp_dml.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Everything a part may import, by the first name after `ccp_dml.`; what is not listed may import anything.
FOUNDATION = {"errors", "seeds", "files", "digests", "config"}
ALLOWED = {
    "functional": {"functional"},
    "errors": set(),
    "seeds": set(),
    "files": set(),
    "digests": set(),
    "patience": set(),
    "stopwatch": set(),
    "activity": set(),
    "config": set(),
    "layers": {"config", "errors"},
    "proxies": {"functional"},
    "losses": FOUNDATION | {"activity", "functional", "losses", "proxies"},
    "models": FOUNDATION | {"functional", "models"},
    "data": FOUNDATION | {"functional", "data"},
    "evaluation": {"functional"},
    "objective": {"proxies"},
    "trainer": {"activity", "errors", "functional", "stopwatch"},
    "projections": {"functional", "patience", "proxies", "seeds", "stopwatch"},
    "certificate": {"certificate", "errors", "functional"},
    "checkpoint": FOUNDATION,
    "reports": FOUNDATION | {"checkpoint", "functional", "data", "reports", "layers"},
}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "ccp_dml":
            parts |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ccp_dml."):
            parts.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            parts |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ccp_dml.")}
    return parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    imported = imported_parts(path)
    if part in ALLOWED:
        assert imported <= ALLOWED[part], f"{part} must not import {sorted(imported - ALLOWED[part])}"
    if part not in ("cli", "commands"):
        assert not imported & {"cli", "commands"}


def test_the_checked_parts_exist():
    assert set(ALLOWED) <= {part_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_small(path):
    lines = len(path.read_text().splitlines())
    assert lines <= 320, f"{lines} lines: which noun hides in this file?"


def test_pure_tensor_code_imports_torch_only():
    for path in (SOURCE / "functional").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                assert name.split(".")[0] in {"torch", "ccp_dml", "collections", "dataclasses", "typing", "math"}, name
