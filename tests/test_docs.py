"""What the documents show is run: Python blocks as programs, the README's commands as commands."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import reference_pages
import result_figures
from support.documents import blocks, follow, run_commands

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


EXTENDING = ROOT / "docs" / "extending.md"
FOLLOWED = {*(ROOT / "docs" / "tutorials").glob("*.md"), EXTENDING}  # from top to bottom, by other tests


def test_programs_stand_in_pages_that_tests_follow():
    elsewhere = [path.name for path in DOCUMENTS if path not in FOLLOWED and blocks(path, "python")]
    assert not elsewhere, f"nothing runs the programs of {elsewhere}: add the pages to a test that follows them"


def test_what_the_page_on_extending_promises_works(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    small = ["data.classes=8", "protocol.folds=2", "train.classes_per_batch=4", "run.map_points=0", "run.workers=0"]
    assert follow(EXTENDING, capsys, small) >= 7


@pytest.mark.parametrize(("program", "score"), [(0, 0.25), (1, 0.5)], ids=["plain", "miner"])
def test_the_own_loops_solve_several_problems(program, score, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = blocks(ROOT / "docs" / "tutorials" / "own_loop.md", "python")[program]
    names = {"__name__": "__main__"}
    exec(text, names)
    projections = names["projections"]
    assert projections.problem > 1
    assert projections.run_patience.best > score  # a chance ranking of 8 equal classes gives far less
    assert str(projections.problem) in capsys.readouterr().out


def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    """Each line of the README's sh block in its order, in an empty folder; trainings are cut short."""
    monkeypatch.chdir(tmp_path)
    assert sum(run_commands(text) for text in blocks(ROOT / "README.md", "sh")) >= 5


def test_links_between_documents_lead_somewhere():
    generated = {ROOT / "docs" / address for address in reference_pages.reference_pages()}
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                aim = path.parent / target
                assert aim.exists() or aim in generated, f"{path.name} links to {target}"


def test_the_readme_opens_with_the_two_commands():
    opening = (ROOT / "README.md").read_text(encoding="utf-8")[:1500]
    assert "make demo" in opening
    assert "make test" in opening


def test_figures_show_the_numbers_of_their_tables():
    drawn = result_figures.figures((ROOT / "docs" / "results.md").read_text(encoding="utf-8"))
    assert len(drawn) >= 4
    for name, drawing in drawn.items():
        file = ROOT / "docs" / "assets" / f"results-{name}.svg"
        assert file.read_text(encoding="utf-8") == drawing, "run: python tools/result_figures.py"


def test_source_files_that_documents_name_exist():
    places = [ROOT, ROOT / "src" / "ccp_dml", ROOT / "docs"]
    for path in DOCUMENTS:
        for name in re.findall(r"`([\w./]+\.py)`", path.read_text(encoding="utf-8")):
            assert any((place / name).exists() for place in places), f"{path.name} names {name}"


def test_every_decision_that_the_code_names_is_explained():
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    named = {
        number
        for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.toml"), *DOCUMENTS]
        for number in re.findall(r"\bD([1-9]\d?)\b", path.read_text(encoding="utf-8"))
    }
    for number in named:
        assert f'<a id="d{number}"></a>**D{number}. ' in decisions, f"D{number} is named but not explained"


def test_reference_pages_can_be_made():
    pages = reference_pages.reference_pages()
    assert "`ccp.pair_weight`" in pages["reference/configuration.md"]
    assert "### c2-ccp-s" in pages["reference/recipes.md"]
    assert "## ccp data prepare" in pages["reference/commands.md"]
    assert "| `INDEX|URI` | An index" in pages["reference/commands.md"]
    assert "`v / max(1, ||v||)`" in pages["reference/api/index.md"]
    assert "| `-k N` | How many images to show. (default: `10`) |" in pages["reference/commands.md"]
    assert "::: ccp_dml.losses.contrastive" in pages["reference/api/losses.md"]
