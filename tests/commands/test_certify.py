"""`ccp certify` as a user calls it, and the certificate that every training leaves."""

import json

import numpy as np
import pytest
import torch

from ccp_dml.cli import main
from ccp_dml.records.embeddings import load_embedded

QUICK = (
    "train.max_steps=8",
    "train.evaluate_every=4",
    "train.classes_per_batch=4",
    "model.embedding_dim=6",
    "optim.lr=0.05",
)
MARGINS = {"c1": ("loss.margin=0.5",), "c2": ("loss.positive_margin=0.0", "loss.negative_margin=0.5")}
"""Whatever recipes may set: the numbers below are about these."""


def train(features, method, out, *settings):
    margins = MARGINS.get(method.removesuffix("-ccp"), ())
    settings = ("ccp.patience=1", *settings) if method.endswith("-ccp") else settings
    options = [
        part for setting in (f"data.path={features}", *QUICK, *margins, *settings) for part in ("--set", setting)
    ]
    assert main(["train", "features", method, *options, "--out", str(out)]) == 0
    return out


def written(run):
    return json.loads((run / "certificate.json").read_text())


def certify(capsys, run, *options):
    capsys.readouterr()
    assert main(["certify", str(run), "--json", *map(str, options)]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, arguments, *words):
    capsys.readouterr()
    assert main(["certify", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("Error: ") == 1
    assert "Traceback" not in error
    for word in words:
        assert word in error, f"{word!r} is not in {error!r}"


def test_training_leaves_the_certificate_that_the_command_makes(features, tmp_path, capsys):
    run = train(features, "c2-ccp", tmp_path / "run", "loss.positive_margin=0.2", "loss.negative_margin=1.0")
    at_the_end = written(run)
    assert at_the_end["constraint"]["beta"] == pytest.approx(0.6)
    assert at_the_end["constraint"]["alpha"] == pytest.approx(0.4)
    assert certify(capsys, run) == at_the_end
    assert written(run) == at_the_end
    assert {name: part["images"] for name, part in at_the_end["sets"].items()} == {
        "training": 48,
        "validation": 16,
        "test": 64,
    }


def test_the_numbers_are_those_of_the_test_embeddings(features, tmp_path):
    run = train(features, "c2", tmp_path / "run", "loss.negative_margin=0.8")
    embeddings, labels = load_embedded(run).queries
    distances = torch.cdist(embeddings.double(), embeddings.double())
    same = (labels[:, None] == labels[None]) & ~torch.eye(len(labels), dtype=torch.bool)
    different = labels[:, None] != labels[None]
    test = written(run)["sets"]["test"]
    for kind, terms, wrong in (
        ("misses", distances[same], distances[same] >= 0.4),  # all classes are equally large, so that all pairs are
        ("false_matches", (0.8 - distances[different]).clamp(min=0), distances[different] <= 0.4),
    ):
        rate = wrong.double().mean().item()
        assert test[kind]["by_images"]["estimate"] == pytest.approx(rate, abs=1e-9)
        assert test[kind]["by_classes"]["estimate"] == pytest.approx(rate, abs=1e-9)
        assert test[kind]["bound"] == pytest.approx(terms.mean().item() / 0.4, rel=1e-5)
    assert test["misses"]["by_images"]["pairs"] == 32
    assert test["misses"]["by_classes"]["pairs"] == 8


def test_the_threshold_is_of_validation_and_measured_on_test(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    certificate = certify(capsys, run, "--false-match-rate", 0.2)
    assert certificate["threshold"]["wanted"] == 0.2
    sets = certificate["sets"]
    on_validation = sets["validation"]["at_threshold"]["false_matches"]["by_images"]["estimate"]
    assert 0.1 < on_validation <= 0.2  # 64 pairs of two classes
    for part in sets.values():
        for violation in part["at_threshold"].values():
            rate = violation["by_images"]
            assert 0 <= rate["low"] <= rate["violations"] / rate["pairs"] <= rate["high"] <= 1
    beta = certificate["threshold"]["beta"]
    given = certify(capsys, run, "--false-match-rate", 0.2, "--beta", beta)
    assert given["constraint"]["origin"] == "as given"
    for kind in ("misses", "false_matches"):
        assert given["sets"]["test"][kind]["by_images"] == sets["test"]["at_threshold"][kind]["by_images"]


@pytest.mark.parametrize("method", ["triplet", "proxy-anchor"])
def test_a_loss_without_a_threshold_gets_the_wanted_one_and_no_bound(features, tmp_path, method, capsys):
    settings = ("train.classes_per_batch=4", "train.images_per_class=2")
    run = train(features, method, tmp_path / "run", *settings)
    certificate = written(run)
    assert certificate["constraint"]["beta"] == certificate["threshold"]["beta"]
    assert certificate["constraint"]["alpha"] is None
    assert certificate["sets"]["test"]["misses"]["bound"] is None
    bounded = certify(capsys, run, "--alpha", certificate["threshold"]["beta"] / 2)
    assert bounded["sets"]["test"]["misses"]["bound"] >= bounded["sets"]["test"]["misses"]["by_images"]["estimate"]


def test_c1_is_certified_where_its_margin_lies(features, tmp_path):
    constraint = written(train(features, "c1", tmp_path / "run"))["constraint"]
    assert constraint["beta"] == pytest.approx(0.5**0.5)  # similarity 0.75, half-way between 1 and 0.5
    assert constraint["alpha"] == pytest.approx(0.25)
    assert constraint["scale"] == "half squared distance"


def test_classes_of_the_last_map_are_covered_by_their_proxies(features, tmp_path):
    ccp = written(train(features, "c2-ccp", tmp_path / "ccp"))["sets"]
    assert set(ccp["training"]["covering_by_proxies"]["radii"]) == set(ccp["training"]["covering"]["radii"])
    assert ccp["test"]["covering_by_proxies"] is None
    assert written(train(features, "c2", tmp_path / "c2"))["sets"]["training"]["covering_by_proxies"] is None


def test_fewer_pairs_are_fewer_images_and_another_seed_other_ones(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    few, others = (certify(capsys, run, "--pairs", 10, "--seed", seed)["sets"]["test"] for seed in (0, 1))
    assert few["images"] <= 20 < few["of_images"] == 64
    assert few["covering"] != others["covering"]
    assert certify(capsys, run, "--pairs", 10)["sets"]["test"] == few


def test_more_confidence_is_a_wider_interval(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    narrow, wide = (
        certify(capsys, run, "--confidence", level)["sets"]["test"]["misses"]["by_images"] for level in (0.6, 0.99)
    )
    assert narrow["estimate"] == wide["estimate"]
    assert narrow["high"] - narrow["low"] < wide["high"] - wide["low"]


def test_selection_on_the_test_classes_is_said(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run", "protocol.select_on=test")
    capsys.readouterr()
    assert main(["certify", str(run)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no line is about unseen classes" in shown
    sets = written(run)["sets"]
    assert sets["validation"]["images"] == sets["test"]["images"] == 64


def test_people_get_tables_and_sentences(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    capsys.readouterr()
    assert main(["certify", str(run), "--false-match-rate", "0.1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Two images of one class should be closer than beta = 0.25" in shown
    assert "To match at most 10 % of different images falsely" in shown
    assert "On test classes the same distance matches" in shown
    assert "Radius that covers a class" in shown
    assert f"ccp report {run}" in shown.replace(" \n", " ")


def test_one_validation_class_is_no_reason_to_lose_a_training(tmp_path, capsys):
    """One test class, asked to select: nothing tells a threshold for a loss that has none."""
    rng = np.random.default_rng(0)
    labels = np.arange(5).repeat(8)
    path = tmp_path / "one.npz"
    np.savez(
        path,
        features=rng.normal(size=(40, 6)).astype(np.float32),
        labels=labels,
        split=np.where(labels == 4, "test", "train"),
    )
    run = train(path, "triplet", tmp_path / "run", "protocol.select_on=test")
    assert not (run / "certificate.json").exists()
    assert f"ccp certify {run}" in (run / "report.html").read_text()
    refused(capsys, [run], "triplet", "one class", "--beta")
    given = certify(capsys, run, "--beta", 0.5)
    assert given["threshold"] is None
    assert given["sets"]["test"]["false_matches"]["by_images"]["estimate"] is None
    assert main(["certify", str(run), "--beta", "0.5"]) == 0
    assert "No threshold could be chosen" in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(run)]) == 0


def test_what_is_no_finished_run_is_refused(features, tmp_path, capsys):
    refused(capsys, [tmp_path / "nowhere"], "nowhere", "ccp train")
    (tmp_path / "empty").mkdir()
    refused(capsys, [tmp_path / "empty"], "empty", "holds no run")
    run = train(features, "c2", tmp_path / "run")
    (run / "result.json").unlink()
    refused(capsys, [run], "not finished", f"ccp train --resume --out {run}")


def test_values_that_make_no_certificate_are_refused_and_the_old_one_stays(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    before = written(run)
    for option, value, *words in (
        ("--beta", 2.5, "beta = 2.5", "between 0 and 2"),
        ("--beta", 0, "beta = 0", "between 0 and 2"),
        ("--alpha", 0.9, "alpha = 0.9", "beta is 0.25"),
        ("--false-match-rate", 1, "rate lies between 0 and 1"),
        ("--confidence", 95, "confidence of 95", "0.95"),
        ("--pairs", 0, "0 pairs"),
    ):
        refused(capsys, [run, option, value], *words)
    assert written(run) == before


def test_a_run_is_certified_where_its_data_have_moved_to(features, tmp_path, capsys):
    run = train(features, "c2", tmp_path / "run")
    before = written(run)
    features.rename(tmp_path / "moved.npz")
    refused(capsys, [run], "features.npz")
    assert certify(capsys, run, "--set", f"data.path={tmp_path / 'moved.npz'}") == before


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_few_pairs_are_enough_for_a_wide_interval(features, tmp_path, capsys, pairs):
    run = train(features, "c2", tmp_path / "run")
    certificate = certify(capsys, run, "--pairs", pairs)
    assert all(part["images"] <= 2 * pairs for part in certificate["sets"].values())
