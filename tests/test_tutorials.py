"""Each tutorial can be followed from top to bottom: its commands and programs run in their order, in one folder."""

from pathlib import Path

import pytest
from support.documents import BLOCK, run_commands

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_can_be_followed(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    followed = 0
    for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")):
        if kind == "sh":
            followed += run_commands(text)
        elif kind == "python":
            capsys.readouterr()
            exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
            assert capsys.readouterr().out.strip(), f"a program in {path.name} shows nothing"
            followed += 1
    assert followed
