"""`ccp list`: everything that can be chosen, with one line on each."""

import json

import pytest

from ccp_dml.cli import main
from ccp_dml.commands.listing import first_line
from ccp_dml.studies import STUDIES


@pytest.mark.parametrize("kind", ["datasets", "losses", "methods", "backbones", "recipes"])
def test_list_names_everything(kind, capsys):
    assert main(["list", kind, "--json"]) == 0
    names = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    wanted = {
        "datasets": {"glyphs", "folder", "csv", "features"},
        "losses": {"c1", "c2", "ms", "triplet"},
        "methods": {
            f"{loss}{end}" for loss in ("c1", "c2", "ms", "triplet") for end in ("", "-proxy", "-ccp", "-ccp-s")
        },
        "backbones": {"bn_inception", "resnet20v2", "resnet50"},
        "recipes": {"glyphs", "c2-ccp"},
    }[kind]
    assert wanted <= names


def test_people_get_one_aligned_line_on_each(capsys):
    assert main(["list", "studies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == list(STUDIES)
    width = max(map(len, names)) + 2
    assert all(line[width - 1] == " " and line[width:] == STUDIES[line.split()[0]].question for line in lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [("# What it is.\n# More.", "What it is"), ("\n    Pull pairs.\n\n    Args: x", "Pull pairs"), ("", "")],
)
def test_the_first_sentence_describes(text, line):
    assert first_line(text) == line
