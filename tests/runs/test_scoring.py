"""Scores of embeddings, of ensembles, and of networks that were trained or not."""

import shutil

import pytest
import torch
from torch.nn import functional as F

from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import TestSet
from ccp_dml.errors import UserError
from ccp_dml.records.embeddings import EmbeddedTest, load_embedded
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.build import build_network
from ccp_dml.runs.certify import CertificateOptions, certify_run
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.scoring import (
    MIXED_SELECTION,
    concatenate,
    different_methods,
    embed_test,
    evaluate_runs,
    load_network,
    refuse_different_data,
    repeated_trainings,
    score_embeddings,
    score_raw_backbone,
)
from ccp_dml.runs.watcher import Watcher

LABELS = torch.tensor([0, 0, 1, 1])
NEAR = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
MIXED = torch.tensor([[0.0], [1.0], [0.1], [1.1]])


def test_queries_are_scored_against_each_other_or_against_their_gallery():
    perfect = score_embeddings(EmbeddedTest((NEAR, LABELS), None), (1, 2))
    assert (perfect["map_at_r"], perfect["queries"], perfect["skipped"]) == (1.0, 4, 0)
    assert perfect["recall_at"] == {"1": 1.0, "2": 1.0}
    assert score_embeddings(EmbeddedTest((MIXED, LABELS), None), (1,))["precision_at_1"] == 0.0
    against = EmbeddedTest((NEAR, LABELS), (MIXED, LABELS))
    assert score_embeddings(against, (1,))["precision_at_1"] == 0.5


def test_an_ensemble_is_normalised_part_by_part_and_as_a_whole():
    first, second = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.1, 0.0]])
    label = torch.tensor([0])
    joined, labels = concatenate([EmbeddedTest((one, label), None) for one in (first, second)]).queries
    expected = torch.tensor([[0.6, 0.8, 0.1, 0.0]])
    assert torch.allclose(joined, expected / expected.norm())  # short embeddings keep their length, long ones do not
    assert torch.equal(labels, label)


def test_an_ensemble_has_a_gallery_if_its_models_have_one_and_one_test_half():
    one = EmbeddedTest((NEAR, LABELS), (MIXED, LABELS))
    assert concatenate([one, one]).references[0].shape == (4, 2)
    assert concatenate([EmbeddedTest((NEAR, LABELS), None)] * 2).references is None
    for other in (EmbeddedTest((NEAR, LABELS.flip(0)), None), EmbeddedTest((NEAR[:3], LABELS[:3]), None)):
        with pytest.raises(UserError, match="different test halves"):
            concatenate([one, other])


def test_runs_of_other_data_are_not_scored_together():
    def of(*settings):
        return resolve(["folder", "c2"], settings).config.data

    first = of("data.root=x")
    how_it_trains = of("data.root=x", "data.augment=none", "data.crop=160", "data.resize=182", "data.views=3")
    refuse_different_data({"a": first, "b": first, "c": how_it_trains})
    for setting in (
        "data.root=y",
        "data.classes=3",
        "data.test_share=0.2",
        "data.skip_broken=true",
        "data.drop_small_classes=true",
    ):
        with pytest.raises(UserError, match=rf"c has another test half than a \({setting.partition('=')[0]} = "):
            refuse_different_data({"a": first, "b": first, "c": of("data.root=x", setting)})


def test_a_training_that_is_given_twice_is_told():
    def of(*settings):
        return resolve(["folder", "c2"], ["data.root=x", *settings]).config

    others = {setting: of(setting) for setting in ("run.seed=1", "protocol.fold=1", "optim.lr=0.5", "model.weights=y")}
    assert repeated_trainings({"a": of(), **others}) == []
    (note,) = repeated_trainings({"a": of(), **others, "copy": of("run.device=cpu")})
    assert note.startswith("copy has the settings, fold and seed of a: mean, spread and ensemble count one training")


def test_runs_that_are_no_repeats_of_one_method_are_named():
    def of(method, *settings):
        return resolve(["folder", method], ["data.root=x", *settings]).config

    repeats = {key: of("c2", f"{key}=1") for key in ("run.seed", "protocol.fold", "run.workers")}
    assert different_methods({"a": of("c2"), **repeats}) == []
    unread = of("c2", "xbm.start_step=7")  # C2 has no memory
    assert different_methods({"a": of("c2"), "b": unread}) == []
    (note,) = different_methods({"a": of("c2"), **repeats, "b": of("c2", "optim.lr=0.5")})
    assert note.startswith("b is not a repeat of a: they differ in optim.lr. Their mean is of no one method")
    (note,) = different_methods({"a": of("c2"), "b": of("c2-ccp")})
    assert "ccp." in note


def test_a_finished_run_embeds_as_it_did_at_its_end(photo_run):
    folder, config = photo_run
    test = build_data(config.data).test
    network = load_network(Logbook.reopen(folder), config, test)
    found, recorded = embed_test(config, network, test), load_embedded(folder)
    for one, other in zip(found.queries, recorded.queries, strict=True):
        assert torch.equal(one, other)
    assert found.references is None
    both = embed_test(config, network, TestSet(test.queries, test.queries))
    assert torch.equal(both.references[0], found.queries[0])


def test_one_run_is_no_ensemble(photo_run):
    folder, _ = photo_run
    alone = evaluate_runs([folder], Watcher())
    assert alone["runs"][str(folder)]["map_at_r"] == alone["map_at_r"]
    assert "concatenated" not in alone


def test_other_data_than_a_run_was_trained_with_are_refused(photo_run, photos, tmp_path):
    """A class whose name comes first moves the border: a learned class would be scored as unseen."""
    folder, _ = photo_run
    before = (folder / "certificate.json").read_text()
    moved = shutil.copytree(photos, tmp_path / "photos")
    assert evaluate_runs([folder], Watcher(), [f"data.root={moved}"])["queries"]
    shutil.copytree(photos / "class_00", moved / "a_new_class")
    for score in (evaluate_runs, lambda runs, *more: certify_run(runs[0], CertificateOptions(), *more)):
        with pytest.raises(UserError, match=r"The data .* are not those that .* was trained with; restore them"):
            score([folder], Watcher(), [f"data.root={moved}"])
    assert (folder / "certificate.json").read_text() == before


def test_runs_that_were_selected_differently_are_told(photo_run, make_photo_run):
    (folder, _), (other, _) = photo_run, make_photo_run("protocol.select_on=test")
    told = Watcher()
    told.note = (notes := []).append
    found = evaluate_runs([folder, other], told)
    assert [run["selected_on"] for run in found["runs"].values()] == ["validation", "test"]
    assert MIXED_SELECTION in notes
    assert found["notes"] == notes, "scripts read no terminal"


def test_weights_that_are_missing_or_do_not_fit_are_told(photo_run, tmp_path):
    folder, config = photo_run
    test = build_data(config.data).test
    empty = Logbook.open_new(tmp_path / "run", config, ["test"])
    with pytest.raises(UserError, match=r"has no best\.safetensors yet; finish it"):
        load_network(empty, config, test)
    wider = config.model_copy(update={"model": config.model.model_copy(update={"embedding_dim": 7})})
    with pytest.raises(UserError, match="does not fit the network"):
        load_network(Logbook.reopen(folder), wider, test)


def test_a_bare_backbone_is_scored_by_its_features(photos, backbone_weights):
    settings = ["data.resize=36", "data.crop=32", "model.backbone=small_cnn", "run.workers=0", f"data.root={photos}"]
    config = resolve(["folder"], [*settings, f"model.weights={backbone_weights}"]).config
    found = score_raw_backbone(config)
    test = build_data(config.data).test.queries
    network = build_network(config.model, test, 0).eval()
    with torch.no_grad():
        features = F.normalize(network.features(test.load(torch.arange(len(test)))), dim=1)
    expected = score_embeddings(EmbeddedTest((features, test.labels), None), config.protocol.recall_at)
    assert found["map_at_r"] == pytest.approx(expected["map_at_r"])
    assert list(found["runs"]) == ["raw small_cnn"]
