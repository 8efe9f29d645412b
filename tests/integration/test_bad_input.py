"""Every mistake of a user ends with code 2 and one sentence that names the input, and loses nothing."""

import errno
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ccp_dml.cli import main

QUICK = ("train.max_steps=4", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=6")


def train(recipes, *settings, out):
    options = [part for setting in (*settings, *QUICK) for part in ("--set", str(setting))]
    return main(["train", *recipes.split(), *options, "--out", str(out)])


def refused(capsys, code, *words):
    """Code 2, one sentence with all the words in it, no stack trace."""
    captured = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in captured.err
    error = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    for word in words:
        assert word in error[0], f"{word!r} is not in {error[0]!r}"


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        ("featurs c2", (), ("featurs", "features")),
        ("features c2-cpp", (), ("c2-cpp", "c2-ccp")),
        ("features c2", ("optim.learning_rat=1",), ("optim.learning_rat",)),
        ("features c2", ("train.patiense=1",), ("train.patiense", "train.patience")),
        ("features c2", ("ccp.pool_per_class=many",), ("ccp.pool_per_class", "many", "whole number")),
        ("features c2", ("optim.lr=0",), ("optim.lr", "greater than 0")),
        ("features c2", ("loss.negative_margn=1",), ("loss.negative_margn", "negative_margin")),
        ("features c2", ("loss.negative_margin=wide",), ("loss.negative_margin", "wide")),
        ("features c2", ("loss.name=c3",), ("c3", "ccp list losses")),
        ("features c2", ("run.precision=8-bit",), ("run.precision", "8-bit")),
        ("features c2", ("data.name=featurez",), ("featurez", "features")),
        ("features c2", (), ("data.path", "--set data.path")),
        ("folder frozen c2", (), ("data.root", "--set data.root")),
    ],
)
def test_wrong_words(recipes, settings, words, tmp_path, capsys):
    refused(capsys, train(recipes, *settings, out=tmp_path / "run"), *words)


@pytest.mark.parametrize(
    ("setting", "words"),
    [("loss.negative_margin=-1", ("negative_margin", "-1")), ("run.device=tpu", ("run.device", "tpu"))],
)
def test_values_that_do_not_work(setting, words, features, tmp_path, capsys):
    refused(capsys, train("features c2", f"data.path={features}", setting, out=tmp_path / "run"), *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there(features, tmp_path, capsys):
    code = train("features c2", f"data.path={features}", "run.device=cuda", out=tmp_path / "run")
    refused(capsys, code, "run.device", "cuda", "auto")


def test_a_fold_out_of_range(features, tmp_path, capsys):
    code = train("features c2", f"data.path={features}", "protocol.fold=4", out=tmp_path / "run")
    refused(capsys, code, "protocol.fold", "4", "0 to 3")


def test_more_classes_in_a_batch_than_there_are(features, tmp_path, capsys):
    settings = ("--set", f"data.path={features}", "--set", "train.classes_per_batch=8")
    code = main(["train", "features", "c2", *settings, "--out", str(tmp_path / "run")])
    refused(capsys, code, "train.classes_per_batch=8", "6")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_output_folder_that_holds_another_run(features, tmp_path, capsys):
    assert train("features c2", f"data.path={features}", out=tmp_path / "run") == 0
    before = contents(tmp_path / "run")
    capsys.readouterr()
    refused(
        capsys, train("features c1", f"data.path={features}", out=tmp_path / "run"), "already holds a run", "--resume"
    )
    assert contents(tmp_path / "run") == before


def test_an_output_folder_with_something_else_in_it(features, tmp_path, capsys):
    refused(capsys, train("features c2", f"data.path={features}", out=tmp_path), str(tmp_path), "not empty")


def test_a_mistake_in_the_data_leaves_no_folder_that_blocks_the_next_try(features, tmp_path, capsys):
    refused(capsys, train("features c2", "data.path=nowhere.npz", out=tmp_path / "run"), "nowhere.npz")
    assert train("features c2", f"data.path={features}", out=tmp_path / "run") == 0


def test_resuming_nothing(tmp_path, capsys):
    refused(capsys, main(["train", "--resume", "--out", str(tmp_path / "none")]), "none", "There is no run")
    refused(capsys, main(["train", "features", "--resume"]), "--out")


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def vectors(rows=32):
    return np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"features": vectors(32), "labels": np.arange(30) % 8}, ("32", "30")),
        (
            {
                "features": np.where(np.arange(96).reshape(32, 3) == 15, np.nan, vectors(32)),
                "labels": np.arange(32) % 8,
            },
            ("NaN", "row 5"),
        ),
        ({"features": vectors(32)}, ("labels",)),
        (
            {"features": vectors(9), "labels": np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])},
            ("single", "0", "data.drop_small_classes=true"),
        ),
    ],
    ids=["lengths", "nan", "no labels", "a class of one"],
)
def test_wrong_features(arrays, words, tmp_path, capsys):
    path = save(tmp_path / "odd.npz", **arrays)
    refused(capsys, train("features c2", f"data.path={path}", out=tmp_path / "run"), "odd.npz", *words)


SMALL_NETWORK = ("model.backbone=resnet20v2", "data.resize=34", "data.crop=32", "run.workers=0")


def test_an_empty_folder(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    code = train("folder c2", f"data.root={tmp_path / 'images'}", *SMALL_NETWORK, out=tmp_path / "run")
    refused(capsys, code, str(tmp_path / "images"))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_named_and_skipped_only_if_asked(image_folder, tmp_path, capsys, workers):
    (image_folder / "class_03" / "2.png").write_bytes(b"not an image")
    settings = (f"data.root={image_folder}", *SMALL_NETWORK, f"run.workers={workers}", "train.max_steps=40")
    refused(capsys, train("folder c2", *settings, out=tmp_path / "run"), "2.png", "data.skip_broken=true")
    assert train("folder c2", *settings, "data.skip_broken=true", out=tmp_path / "skipping") == 0
    assert "2.png" in capsys.readouterr().err


def test_a_csv_without_the_column(tmp_path, capsys):
    (tmp_path / "table.csv").write_text("path,class\na.png,1\n")
    code = train("csv c2", f"data.path={tmp_path / 'table.csv'}", *SMALL_NETWORK, out=tmp_path / "run")
    refused(capsys, code, "table.csv", "label")


def test_a_csv_with_an_empty_cell(image_folder, tmp_path, capsys):
    rows = [f"{path},{path.parent.name}" for path in sorted(image_folder.rglob("*.png"))]
    rows[3] = rows[3].split(",")[0] + ","
    (tmp_path / "table.csv").write_text("path,label\n" + "\n".join(rows))
    code = train("csv c2", f"data.path={tmp_path / 'table.csv'}", *SMALL_NETWORK, out=tmp_path / "run")
    refused(capsys, code, "table.csv", "row", "label")


def test_weights_of_another_architecture(image_folder, tmp_path, capsys):
    save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "other.safetensors")
    settings = (f"data.root={image_folder}", *SMALL_NETWORK, f"model.weights={tmp_path / 'other.safetensors'}")
    refused(capsys, train("folder c2", *settings, out=tmp_path / "run"), "other.safetensors", "resnet20v2")


def test_an_unknown_backbone(image_folder, tmp_path, capsys):
    code = train("folder c2", f"data.root={image_folder}", "model.backbone=resnet5O", out=tmp_path / "run")
    refused(capsys, code, "resnet5O", "resnet50")


def test_evaluating_what_is_no_run(tmp_path, capsys):
    refused(capsys, main(["evaluate", str(tmp_path)]), str(tmp_path))
    refused(capsys, main(["report", str(tmp_path)]), str(tmp_path))


def narrower(arrays):
    return {**arrays, "features": arrays["features"][:, :7]}


def without_a_class(arrays):
    return {name: rows[arrays["labels"] != 1] for name, rows in arrays.items()}


def without_a_test_item(arrays):
    return {name: rows[:-1] for name, rows in arrays.items()}


def otherwise(arrays):
    return {**arrays, "features": arrays["features"] + 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (narrower, ("The data (classes, labels or features)", "restore them")),
        (otherwise, ("The data (classes, labels or features)", "restore them")),
        (without_a_class, ("The data (classes, labels or features)", "restore them")),
        (without_a_test_item, ("The data (classes, labels or features)", "restore them")),
    ],
)
@pytest.mark.parametrize("steps", [4, 8])
def test_other_data_do_not_resume_a_run_and_nothing_is_lost(change, words, steps, features, tmp_path, capsys):
    run = tmp_path / "run"
    assert train("features c2-ccp", f"data.path={features}", out=run) == 0
    before = contents(run)
    np.savez(features, **change(dict(np.load(features))))
    capsys.readouterr()
    refused(capsys, longer(run, features, steps), *words)
    assert contents(run) == before


def longer(run, features, steps):
    """Resume a run of `train` with its own settings, but up to another step."""
    settings = [setting.replace("max_steps=4", f"max_steps={steps}") for setting in QUICK]
    options = [part for setting in (f"data.path={features}", *settings) for part in ("--set", setting)]
    return main(["train", "features", "c2-ccp", *options, "--out", str(run), "--resume"])


@pytest.mark.parametrize("part", [None, "projections", "trainer"])
def test_a_checkpoint_of_another_version_is_refused_and_kept(part, features, tmp_path, capsys):
    run = tmp_path / "run"
    assert train("features c2-ccp", f"data.path={features}", out=run) == 0
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    (state if part is None else state[part])["of_tomorrow"] = 1
    torch.save(state, run / "checkpoint.pt")
    before = contents(run)
    capsys.readouterr()
    refused(capsys, longer(run, features, 8), "another version", "of_tomorrow", "environment.json")
    assert contents(run) == before


def test_a_run_takes_no_steps_back(features, tmp_path, capsys):
    run = tmp_path / "run"
    assert train("features c2-ccp", f"data.path={features}", out=run) == 0
    before = contents(run)
    capsys.readouterr()
    refused(capsys, longer(run, features, 2), "train.max_steps=2", "4 steps")
    assert contents(run) == before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("metrics.jsonl", None, ("metrics.jsonl", "step 4")),
        ("result.json", "", ("result.json", "not valid JSON", "remove it")),
    ],
)
def test_a_run_with_a_file_that_is_lost_or_damaged(name, content, words, features, tmp_path, capsys):
    run = tmp_path / "run"
    assert train("features c2-ccp", f"data.path={features}", out=run) == 0
    (run / name).unlink() if content is None else (run / name).write_text(content)
    before = contents(run)
    capsys.readouterr()
    code = longer(run, features, 8) if content is None else main(["train", "--resume", "--out", str(run)])
    refused(capsys, code, *words)
    assert contents(run) == before


def test_features_without_a_difference_leave_no_folder_that_blocks_the_next_try(features, tmp_path, capsys):
    arrays = dict(np.load(features))
    save(features, **{**arrays, "features": np.ones_like(arrays["features"])})
    assert train("features c2", f"data.path={features}", out=tmp_path / "run") == 2
    capsys.readouterr()
    save(features, **arrays)
    assert train("features c2", f"data.path={features}", out=tmp_path / "run") == 0


def test_a_class_whose_name_is_no_text_is_refused_before_anything_is_done(image_folder, tmp_path, capsys):
    os.rename(image_folder / "class_00", os.fsencode(image_folder) + b"/caf\xe9")
    code = train("folder c2", f"data.root={image_folder}", "model.backbone=small_cnn", out=tmp_path / "run")
    refused(capsys, code, "not valid UTF-8", "caf\\udce9", "rename")
    assert not (tmp_path / "run").exists()


def test_an_output_below_a_file(features, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert train("features c2", f"data.path={features}", out=tmp_path / "run") == 0
    capsys.readouterr()
    refused(capsys, main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "file" / "x.html")]), "is a file")
    below = ["--methods", "c2", "--out", str(tmp_path / "file" / "bench"), "--set", f"data.path={features}"]
    refused(capsys, main(["benchmark", "mlrc", "--data", "features", *below]), "is a file", "--out")


def test_a_full_disk(features, tmp_path, capsys, monkeypatch):
    def no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("ccp_dml.records.logbook.Logbook.record", no_room)
        refused(capsys, train("features c2", f"data.path={features}", out=tmp_path / "run"), "No space left", "room")
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
