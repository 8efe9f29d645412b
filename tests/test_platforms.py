"""What keeps the package usable on macOS and Windows; see docs/platforms.md."""

import ast
import pickle
from pathlib import Path

import pytest
import torch

import ccp_dml
from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.data.transforms import eval_transform, train_transform

SOURCE = Path(ccp_dml.__file__).parent
OF_ONE_SYSTEM = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "posix", "msvcrt", "winreg"}
MODULES = sorted(SOURCE.rglob("*.py"))


def test_modules_of_one_system_are_imported_where_they_may_be_missing():
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guarded = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in ast.walk(block)}
        for node in ast.walk(tree):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module} if isinstance(node, ast.ImportFrom) else set()
            assert not (names & OF_ONE_SYSTEM and id(node) not in guarded), f"{path.name} imports {names}"


def test_no_process_is_forked():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("fork", "forkpty"), path.name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_context":
                assert [argument.value for argument in node.args] == ["spawn"], path.name


def test_signals_that_windows_lacks_are_looked_up():
    for path in MODULES:
        assert "signal.SIGKILL" not in path.read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize("kind", ["files", "glyphs"])
def test_sources_reach_a_process_that_starts_anew(kind, image_folder):
    source = load_glyphs().train.source
    if kind == "files":
        source = ImageFiles(sorted(image_folder.rglob("*.png"))[:2], train_transform(16, 12), eval_transform(16, 12))
    copied = pickle.loads(pickle.dumps(source))
    rows = torch.arange(2)
    assert torch.equal(copied.load(rows, rows), source.load(rows, rows))
