"""`ccp index` as a user calls it, with a network that was really trained."""

import shutil

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.serving.search import approximate, vector_engine
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.unfinished_build import UnfinishedBuild


def test_adding_refreshing_removing_and_showing(photos, photo_run, tmp_path, capsys, run_json):
    images = tmp_path / "images"
    shutil.copytree(photos, images)
    index = tmp_path / "own.index"
    assert main(["index", str(photo_run[0]), str(images / "class_00"), "--out", str(index)]) == 0
    assert f"Images without a label: 5, in {images / 'class_00'} itself" in capsys.readouterr().err
    assert main(["index", str(photo_run[0]), str(images), "--out", str(index)]) == 0
    assert "80 images (75 added, 5 relabelled)" in capsys.readouterr().out
    assert main(["index", str(photo_run[0]), str(images / "class_00" / "0.png"), "--out", str(index)]) == 0
    assert "without a label" not in capsys.readouterr().err
    (images / "class_01" / "0.png").unlink()
    assert main(["index", "refresh", str(index)]) == 0
    shown = capsys.readouterr()
    assert "80 images (79 unchanged)" in shown.out
    assert "1 file is missing" in shown.err
    assert f"`ccp index refresh {index} --drop-missing` forgets them" in shown.err
    assert main(["search", str(index), str(images / "class_01" / "1.png"), "-k", "80"]) == 0
    assert "1 of these images have moved or are gone" in capsys.readouterr().err
    (images / "class_01" / "1.png").write_bytes(b"half of a picture")
    assert main(["index", "refresh", str(index), "--drop-missing"]) == 0
    shown = capsys.readouterr()
    assert "79 images (1 removed, 78 unchanged)" in shown.out
    assert f"Forgotten, as the files are missing: {images / 'class_01' / '0.png'}." in shown.err
    assert "1 file cannot be read" in shown.err
    assert "What was indexed before stays as it was" in shown.err
    assert main(["index", "remove", str(index), "--where", 'label = "class_01"']) == 0
    facts = run_json("index", "show", index)
    assert (facts["images"], facts["missing"], len(facts["labels"])) == (75, [], 15)
    assert main(["index", "remove", str(index)]) == 2


def test_a_file_that_never_was_indexed_is_not_said_to_be_forgotten(photo_run, photos, tmp_path, capsys):
    table = tmp_path / "list.csv"
    table.write_text(f"path\n{photos / 'class_00' / '0.png'}\nnothing.png\n")
    assert main(["index", str(photo_run[0]), str(table), "--out", str(tmp_path / "own.index")]) == 0
    shown = capsys.readouterr()
    assert "own.index: 1 image (1 added)" in shown.out
    assert f"1 file is missing: {tmp_path / 'nothing.png'}. What was indexed before stays" in shown.err
    assert "--drop-missing" not in shown.err


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
    assert main(["index", "refresh", str(index), "--model", str(tmp_path / "elsewhere")]) == 0
    assert main(["search", str(index), query]) == 0, "from now on the index knows where its model is"


def test_pushed_to_the_embedded_engine_the_results_are_the_same(birds, photos, tmp_path, capsys, run_json):
    pytest.importorskip("milvus_lite")
    address = str(tmp_path / "engine.db")
    assert main(["index", "push", str(birds), address]) == 0
    assert "engine.db#birds: 80 images (80 sent, 0 deleted)" in capsys.readouterr().out
    query = photos / "class_05" / "2.png"
    arguments = (query, "-k", 7, "--where", 'label != "class_05"')
    assert run_json("search", address, *arguments) == run_json("search", birds, *arguments)


def test_vectors_of_embed_are_indexed_without_embedding_again(birds, photo_run, photos, tmp_path, capsys, run_json):
    vectors = tmp_path / "v.npz"
    assert main(["embed", str(photo_run[0]), str(photos), "--out", str(vectors)]) == 0
    index = tmp_path / "read.index"
    assert main(["index", str(photo_run[0]), str(vectors), "--out", str(index)]) == 0
    shown = capsys.readouterr().out
    assert "Read 80 vectors instead of computing them." in shown
    assert "80 images (80 added)" in shown
    query = photos / "class_03" / "1.png"
    assert run_json("search", index, query, "-k", 80) == run_json("search", birds, query, "-k", 80)


def test_vectors_and_images_can_be_named_together(photo_run, photos, tmp_path, capsys):
    vectors, index = tmp_path / "v.npz", tmp_path / "both.index"
    images = tmp_path / "images"
    shutil.copytree(photos, images)
    assert main(["embed", str(photo_run[0]), str(images / "class_00"), "--out", str(vectors)]) == 0
    shutil.copy(images / "class_01" / "0.png", images / "class_00" / "0.png")  # changed since
    assert main(["index", str(photo_run[0]), str(vectors), str(images), "--out", str(index)]) == 0
    assert "Read 4 vectors" in capsys.readouterr().out
    stored = SearchIndex.open(index)
    assert (stored.count, stored.label_counts()["class_00"]) == (80, 5)
    paths = [item.path for item in stored.items(stored.ids.tolist())]
    model = ccp.load(photo_run[0])
    np.testing.assert_allclose(stored.vectors, model.comparable(model.embed(paths)), atol=1e-6)


def test_a_table_knows_better_than_vectors_what_is_true_of_an_image(photo_run, photos, tmp_path):
    vectors, index, table = tmp_path / "v.npz", tmp_path / "both.index", tmp_path / "list.csv"
    image = photos / "class_00" / "0.png"
    table.write_text(f"path,label,year,place\n{image},wren,2019,Wald\n")
    assert main(["embed", str(photo_run[0]), str(table), "--out", str(vectors)]) == 0
    for columns, label in (("path,year", "wren"), ("path,year,label", "robin")):
        table.write_text(f"{columns}\n{image},2020{',robin' if 'label' in columns else ''}\n")
        assert main(["index", str(photo_run[0]), str(table), str(vectors), "--out", str(index)]) == 0
        (item,) = SearchIndex.open(index).items([1])
        assert (item.label, item.attributes) == (label, {"year": 2020, "place": "Wald"})


def test_a_backbone_whose_file_has_moved_is_named_with_set(
    make_frozen_run, backbone_weights, photos, tmp_path, capsys, monkeypatch
):
    weights = shutil.copy(backbone_weights, tmp_path / "weights.safetensors")
    run, _ = make_frozen_run(f"model.weights={weights}")
    index = str(tmp_path / "x.index")
    served = []
    monkeypatch.setattr("ccp_dml.commands.serving.serve.run_server", lambda app, *_: served.append(app))
    build = ["index", str(run), str(photos / "class_00"), "--out", index]
    assert main(build) == 0
    weights.unlink()
    for arguments in (
        build,
        ["index", "refresh", index],
        ["search", index, str(photos / "class_00" / "0.png")],
        ["serve", index, "--port", "0"],
        ["serve", str(run), "--port", "0"],
    ):
        assert main(arguments) == 2
        assert "set model.weights=FILE to where it is now" in " ".join(capsys.readouterr().err.split())
        assert main([*arguments, "--set", f"model.weights={backbone_weights}"]) == 0
    assert len(served) == 2


def test_vectors_of_another_model_are_refused(photo_run, frozen_run, photos, tmp_path, capsys):
    vectors = tmp_path / "v.npz"
    assert main(["embed", str(photo_run[0]), str(photos / "class_00"), "--out", str(vectors)]) == 0
    assert main(["index", str(frozen_run[0]), str(vectors), "--out", str(tmp_path / "x.index")]) == 2
    assert "v.npz holds vectors of another model" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x.index").exists()


def test_an_interrupted_build_goes_on_where_it_stopped(photo_run, photos, tmp_path, capsys, monkeypatch):
    saved, index, whole = (tmp_path / name for name in ("model", "x.index", "whole.index"))
    ccp.load(photo_run[0], settings=["run.evaluation_batch=20"]).save(saved)
    command = ["index", str(saved), str(photos), "--out", str(index)]
    with monkeypatch.context() as patch:
        appends = iter([UnfinishedBuild.append] * 3)

        def append_thrice(*arguments):
            for append in appends:
                return append(*arguments)
            raise KeyboardInterrupt

        patch.setattr(UnfinishedBuild, "append", append_thrice)
        assert main(command) == 130
    assert "is as it was before, and the same command goes on where this one stopped." in " ".join(
        capsys.readouterr().err.split()
    )
    assert not index.exists()
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Went on after 60 images of an earlier command." in shown
    assert "80 images (80 added)" in shown
    assert main(["index", str(saved), str(photos), "--out", str(whole)]) == 0
    np.testing.assert_array_equal(SearchIndex.open(index).vectors, SearchIndex.open(whole).vectors)


def test_a_push_that_was_cut_off_is_said_and_gone_on_with(birds, photos, tmp_path, capsys, monkeypatch):
    pytest.importorskip("milvus_lite")
    address, query = str(tmp_path / "engine.db"), str(photos / "class_05" / "2.png")
    monkeypatch.setattr(vector_engine, "BATCH", 30)
    with monkeypatch.context() as patch:
        sends = iter([vector_engine._send])

        def send_once(*arguments):
            for send in sends:
                return send(*arguments)
            raise KeyboardInterrupt

        patch.setattr(vector_engine, "_send", send_once)
        assert main(["index", "push", str(birds), address]) == 130
    assert "the same command goes on where this one stopped" in capsys.readouterr().err
    assert main(["search", address, query]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "engine.db is not whole" in said
    assert "30 images where the index has 80" in said
    assert main(["index", "push", str(birds), address]) == 0
    shown = capsys.readouterr().out
    assert "Finished a push that had been cut off." in shown
    assert "80 images (50 sent, 0 deleted)" in shown
    assert main(["search", address, query]) == 0
    assert "not whole" not in capsys.readouterr().err


def test_an_index_that_is_too_small_by_now_says_that_search_is_exact(photo_run, photos, tmp_path, capsys, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(approximate, "LEAST_VECTORS", 80)
    index = tmp_path / "x.index"
    assert main(["index", str(photo_run[0]), str(photos), "--out", str(index), "--approximate", "ivf"]) == 0
    assert "Approximate search (ivf) finds" in capsys.readouterr().out
    assert main(["index", "remove", str(index), str(photos / "class_00" / "0.png")]) == 0
    shown = capsys.readouterr().out
    assert "Search is exact again: approximate search is for 80 images and more." in shown
    assert "Approximate search (ivf)" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}/nothing", "{query}", "--out", "{tmp}/x"], "nothing"),
        (["{run}", "{tmp}/nothing.npz", "--out", "{tmp}/x"], "There is no file"),
        (["{run}", "{query}", "--out", "{tmp}/x", "--approximate", "magic"], "give hnsw or ivf"),
        (["push", "{birds}", "nowhere"], "nowhere is no address"),
        (["refresh", "{tmp}/nothing"], "There is no index"),
        (["remove", "{birds}"], "Say what to remove"),
        (["refres", "{birds}"], "There is no model refres; did you mean `ccp index refresh`?"),
    ],
)
def test_mistakes_end_in_a_sentence(birds, photo_run, photos, tmp_path, capsys, arguments, message):
    names = {"birds": birds, "query": photos / "class_00" / "0.png", "tmp": tmp_path, "run": photo_run[0]}
    assert main(["index", *(part.format(**names) for part in arguments)]) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
