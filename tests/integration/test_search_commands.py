"""`ccp index` and `ccp search` as a user calls them, with a network that was really trained."""

import json
import shutil

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.cli import main


@pytest.fixture(scope="module")
def birds(photo_run, photos, tmp_path_factory):
    """An index of all photos by a trained network."""
    folder = tmp_path_factory.mktemp("search") / "birds.index"
    assert main(["index", str(photo_run[0]), str(photos), "--out", str(folder)]) == 0
    return folder


def run_json(capsys, *arguments):
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_search_gives_the_nearest_of_what_the_model_embeds(birds, photo_run, photos, capsys):
    model = ccp.load(photo_run[0])
    paths = sorted(photos.rglob("*.png"))
    query = paths[7]
    found = run_json(capsys, "search", birds, query, "-k", 5)["results"]
    vectors = model.comparable(model.embed(paths)).astype(np.float64)
    distances = np.linalg.norm(vectors - vectors[7], axis=1)
    nearest = np.argsort(distances, kind="stable")[:5]
    assert found[0]["path"] == str(query)
    assert [row["distance"] for row in found] == pytest.approx(distances[nearest], abs=1e-4)
    assert [row["label"] for row in found] == [paths[place].parent.name for place in nearest]
    assert found[0]["distance"] == pytest.approx(0, abs=1e-4)


def test_conditions_and_rates_narrow_the_results(birds, photos, photo_run, capsys):
    query = photos / "class_00" / "0.png"
    found = run_json(capsys, "search", birds, query, "--where", 'label in ("class_03", "class_04")')["results"]
    assert {row["label"] for row in found} == {"class_03", "class_04"}
    assert len(found) == 10
    within = run_json(capsys, "search", birds, query, "-k", 80, "--within", 0.2)
    everything = run_json(capsys, "search", birds, query, "-k", 80)["results"]
    threshold = ccp.load(photo_run[0]).threshold(0.2)
    assert within["results"] == [row for row in everything if row["distance"] <= threshold]
    assert within["threshold"] == threshold
    assert "matched falsely" in within["promise"]


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


def test_adding_refreshing_removing_and_showing(photos, photo_run, tmp_path, capsys):
    images = tmp_path / "images"
    shutil.copytree(photos, images)
    index = tmp_path / "own.index"
    assert main(["index", str(photo_run[0]), str(images / "class_00"), "--out", str(index)]) == 0
    assert main(["index", str(photo_run[0]), str(images), "--out", str(index)]) == 0
    assert "80 images (75 added, 5 relabelled, 5 unchanged)" in capsys.readouterr().out
    (images / "class_01" / "0.png").unlink()
    assert main(["index", "refresh", str(index)]) == 0
    shown = capsys.readouterr()
    assert "80 images (79 unchanged)" in shown.out
    assert "1 files are missing" in shown.err
    assert main(["search", str(index), str(images / "class_01" / "1.png"), "-k", "80"]) == 0
    assert "1 of these images have moved or are gone" in capsys.readouterr().err
    assert main(["index", "remove", str(index), "--where", 'label = "class_01"']) == 0
    facts = run_json(capsys, "index", "show", index)
    assert (facts["images"], facts["missing"], len(facts["labels"])) == (75, [], 15)
    assert main(["index", "remove", str(index)]) == 2


def test_a_model_that_moved_is_asked_for_and_another_is_refused(photo_run, photos, tmp_path, capsys):
    saved = tmp_path / "model"
    ccp.load(photo_run[0]).save(saved)
    index = tmp_path / "own.index"
    assert main(["index", str(saved), str(photos / "class_00"), "--out", str(index)]) == 0
    saved.rename(tmp_path / "elsewhere")
    query = str(photos / "class_00" / "0.png")
    assert main(["search", str(index), query]) == 2
    assert "say where it is with --model" in " ".join(capsys.readouterr().err.split())
    assert main(["search", str(index), query, "--model", str(tmp_path / "elsewhere")]) == 0
    assert main(["search", str(index), query, "--model", str(photo_run[0])]) == 0  # the same network, a run this time


def test_pushed_to_the_embedded_engine_the_results_are_the_same(birds, photos, tmp_path, capsys):
    pytest.importorskip("milvus_lite")
    address = str(tmp_path / "engine.db")
    assert main(["index", "push", str(birds), address]) == 0
    assert "engine.db#birds: 80 images (80 sent, 0 deleted)" in capsys.readouterr().out
    query = photos / "class_05" / "2.png"
    arguments = (query, "-k", 7, "--where", 'label != "class_05"')
    assert run_json(capsys, "search", address, *arguments) == run_json(capsys, "search", birds, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "{tmp}/nothing", "{query}"], "There is no index"),
        (["search", "{birds}", "{tmp}/nothing.jpg"], "nothing.jpg (there is no such file)"),
        (["search", "{birds}", "{query}", "--where", "label ="], "cannot be read: at character 8"),
        (["search", "{birds}", "{query}", "--within", "7"], "no false-match rate"),
        (["index", "{tmp}/nothing", "{query}", "--out", "{tmp}/x"], "nothing"),
        (["index", "{run}", "{query}", "--out", "{tmp}/x", "--approximate", "magic"], "give hnsw or ivf"),
        (["index", "push", "{birds}", "nowhere"], "nowhere is no address"),
    ],
)
def test_mistakes_end_in_a_sentence(birds, photo_run, photos, tmp_path, capsys, arguments, message):
    names = {"birds": birds, "query": photos / "class_00" / "0.png", "tmp": tmp_path, "run": photo_run[0]}
    assert main([part.format(**names) for part in arguments]) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
