"""What the documents show is run: Python blocks as programs, and the README's commands as commands."""

import re
import shlex
from pathlib import Path

import pytest

from ccp_dml.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path, language):
    return [text for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language]


PROGRAMS = [(path, text) for path in DOCUMENTS for text in blocks(path, "python")]


@pytest.mark.parametrize(("path", "text"), PROGRAMS, ids=[path.name for path, _ in PROGRAMS])
def test_python_blocks_run(path, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip(), f"a program in {path.name} shows nothing"


def test_the_own_loop_solves_several_problems(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (text,) = blocks(ROOT / "docs" / "tutorials" / "own_loop.md", "python")
    names = {"__name__": "__main__"}
    exec(text, names)
    projections = names["projections"]
    assert projections.problem > 1
    assert projections.run_patience.best > 0.25  # a chance ranking of 8 equal classes gives far less
    assert str(projections.problem) in capsys.readouterr().out


def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    """Each line of the README's sh block in its order, in an empty folder; trainings are cut short."""
    monkeypatch.chdir(tmp_path)
    lines = [line for text in blocks(ROOT / "README.md", "sh") for line in text.splitlines() if line.startswith("ccp ")]
    assert len(lines) >= 5
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] == "train":
            arguments += ["--set", "train.max_steps=4", "--set", "train.evaluate_every=2"]
        assert main(arguments) == 0, line


def test_links_between_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_opens_with_the_two_commands():
    opening = (ROOT / "README.md").read_text(encoding="utf-8")[:1500]
    assert "make demo" in opening
    assert "make test" in opening
