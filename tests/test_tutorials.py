"""Each tutorial can be followed from top to bottom: its commands and programs run in their order, in one folder."""

from pathlib import Path

import pytest
from support.documents import follow

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_can_be_followed(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert follow(path, capsys)
