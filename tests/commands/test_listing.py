"""`ccp list`: everything that can be chosen, with one line on each."""

import json
from importlib.metadata import EntryPoint

import pytest

from ccp_dml.cli import main
from ccp_dml.commands.listing import catalogue, first_line, remembered
from ccp_dml.foundation import own_code
from ccp_dml.studies import STUDIES


@pytest.mark.parametrize("kind", ["datasets", "losses", "methods", "backbones", "modes", "recipes"])
def test_list_names_everything(kind, capsys):
    assert main(["list", kind, "--json"]) == 0
    names = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    wanted = {
        "datasets": {"glyphs", "folder", "csv", "features"},
        "losses": {"c1", "c2", "ms", "triplet"},
        "methods": {
            f"{loss}{end}"
            for loss in ("c1", "c2", "ms", "triplet")
            for end in ("", "-proxy", "-ccp", "-ccp-s", "-profs")
        },
        "backbones": {"bn_inception", "resnet20v2", "resnet50"},
        "modes": {"frozen", "top", "finetune", "scratch"},
        "recipes": {"glyphs", "c2-ccp"},
    }[kind]
    assert wanted <= names


def test_a_loss_stands_before_its_variants():
    names = list(catalogue("methods"))
    assert names[:3] == ["c1", "c1-ccp", "c1-ccp-s"]


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


def test_names_can_be_filtered(capsys):
    assert main(["list", "backbones", "ResNet50", "--json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert "resnet50" in names
    assert all("resnet50" in name for name in names)
    assert main(["list", "methods", "c3"]) == 2
    assert "None of the methods has 'c3' in its name" in capsys.readouterr().err


def test_what_takes_long_is_computed_once_per_version(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def compute():
        calls.append(1)
        return {"name": "text"}

    for _ in range(2):
        assert remembered("things", compute, ("typer",), "studies") == {"name": "text"}
    assert len(calls) == 1
    (kept,) = (tmp_path / "ccp-dml" / "lists").iterdir()
    kept.write_text("[1")  # damaged: computed again
    assert remembered("things", compute, ("typer",), "studies") == {"name": "text"}
    monkeypatch.setattr("ccp_dml.commands.listing.version", lambda _: "another")
    remembered("things", compute, ("typer",), "studies")
    assert len(calls) == 3


def test_what_packages_register_is_listed(monkeypatch):
    point = EntryPoint("birds", "birds.data:Birds", own_code.DATASETS)
    monkeypatch.setattr(own_code, "plugins", lambda group: {"birds": point} if group == own_code.DATASETS else {})
    assert catalogue("datasets")["birds"] == "of the package birds.data"
