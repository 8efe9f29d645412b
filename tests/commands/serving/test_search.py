"""`ccp search` as a user calls it, with a network that was really trained."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.commands.serving.search import seen_from_here


def test_search_gives_the_nearest_of_what_the_model_embeds(birds, photo_run, photos, run_json):
    model = ccp.load(photo_run[0])
    paths = sorted(photos.rglob("*.png"))
    query = paths[7]
    found = run_json("search", birds, query, "-k", 5)["results"]
    vectors = model.comparable(model.embed(paths)).astype(np.float64)
    distances = np.linalg.norm(vectors - vectors[7], axis=1)
    nearest = np.argsort(distances, kind="stable")[:5]
    assert found[0]["path"] == str(query)
    assert [row["distance"] for row in found] == pytest.approx(distances[nearest], abs=1e-4)
    assert [row["label"] for row in found] == [paths[place].parent.name for place in nearest]
    assert found[0]["distance"] == pytest.approx(0, abs=1e-4)


def test_conditions_and_rates_narrow_the_results(birds, photos, photo_run, run_json):
    query = photos / "class_00" / "0.png"
    found = run_json("search", birds, query, "--where", 'label in ("class_03", "class_04")')["results"]
    assert {row["label"] for row in found} == {"class_03", "class_04"}
    assert len(found) == 10
    within = run_json("search", birds, query, "-k", 80, "--within", 0.2)
    everything = run_json("search", birds, query, "-k", 80)["results"]
    threshold = ccp.load(photo_run[0]).threshold(0.2)
    assert within["results"] == [row for row in everything if row["distance"] <= threshold]
    assert within["threshold"] == threshold
    assert "matched falsely" in within["promise"]


def test_results_that_a_small_k_cuts_off_within_the_distance_are_noted(birds, photos, capsys):
    asked = ["search", str(birds), str(photos / "class_00" / "0.png"), "--within", "1"]
    assert main([*asked, "-k", "5", "--json"]) == 0
    assert "All 5 results lie within the distance; there may be more of them" in capsys.readouterr().err
    assert main([*asked, "-k", "80"]) == 0
    assert "may be more" not in capsys.readouterr().err


def test_the_table_and_the_page_show_names_as_text(photo_run, photos, tmp_path, capsys):
    folder = tmp_path / "odd"
    shutil.copytree(photos / "class_00", folder / "[red]<b>x")
    index = tmp_path / "odd.index"
    assert main(["index", str(photo_run[0]), str(folder), "--out", str(index)]) == 0
    page = tmp_path / "results.html"
    assert main(["search", str(index), str(photos / "class_00" / "0.png"), "--html", str(page)]) == 0
    assert "[red]<b>x" in capsys.readouterr().out
    assert "[red]&lt;b&gt;x" in page.read_text()
    assert "<b>x" not in page.read_text()
    assert page.read_text().count("data:image/webp") == 6


def test_the_page_replaces_nothing_but_pages(birds, photos, tmp_path, capsys):
    query = photos / "class_00" / "0.png"
    photo = shutil.copy(query, tmp_path / "mine.png")
    asked = ["search", str(birds), str(query), "--html", str(photo)]
    assert main(asked) == 2
    shown = capsys.readouterr()
    assert "--force replaces it" in " ".join(shown.err.split())
    assert shown.out == ""
    assert photo.read_bytes() == query.read_bytes()
    assert main([*asked, "--force"]) == 0
    assert main(asked) == 0, "a page of this command may be replaced"
    assert main([*asked[:-1], str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder; give --html the file" in " ".join(capsys.readouterr().err.split())


def test_a_condition_that_mixes_texts_and_numbers_is_noted(birds, photos, capsys):
    assert main(["search", str(birds), str(photos / "class_00" / "0.png"), "--where", "label = 3"]) == 0
    assert "`label` is text, which never equals a number" in capsys.readouterr().err
    assert main(["index", "remove", str(birds), "--where", "label = 3"]) == 0
    assert "`label` is text, which never equals a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "{tmp}/nothing", "{query}"], "There is no index"),
        (["search", "{tmp}/nothing", "{tmp}/nothing.jpg"], "There is no index"),
        (["search", "{birds}", "{tmp}/nothing.jpg"], "nothing.jpg does not exist: give a picture"),
        (["search", "{birds}", "{tmp}"], "is a folder: give a picture"),
        (["search", "{birds}", "{query}", "--where", "label ="], "cannot be read: at character 8"),
        (["search", "{birds}", "{query}", "--within", "7"], "no false-match rate"),
    ],
)
def test_mistakes_end_in_a_sentence(birds, photos, tmp_path, capsys, arguments, message):
    names = {"birds": birds, "query": photos / "class_00" / "0.png", "tmp": tmp_path}
    assert main([part.format(**names) for part in arguments]) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err


def test_the_table_names_files_as_a_person_would_type_them(birds, photos, monkeypatch, capsys):
    query = photos / "class_00" / "0.png"
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(photos)
    assert main(["search", str(birds), str(query), "-k", "1"]) == 0
    assert f" {Path('class_00') / '0.png'} " in capsys.readouterr().out
    assert seen_from_here(str(photos.parent / "other.png")) == str(photos.parent / "other.png")
