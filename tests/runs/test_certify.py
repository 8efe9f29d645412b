"""From a run to its certificate; what a person may ask of it is in tests/commands/test_certify.py."""

import json
from dataclasses import replace

import pytest
import torch

from ccp_dml.certificate.set_certificate import Threshold
from ccp_dml.certificate.violation import Interval
from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import Parts, TestSet
from ccp_dml.errors import UserError
from ccp_dml.losses import ContrastiveLoss, TripletLoss
from ccp_dml.records.embeddings import save_embedded
from ccp_dml.runs import certify
from ccp_dml.runs.build import build_network
from ccp_dml.runs.certify import (
    CertificateOptions,
    certify_run,
    embed_part,
    proxies_of_problem,
    settle_constraint,
    stored_test,
)
from ccp_dml.runs.datasets import build_data
from ccp_dml.runs.scoring import embed_test
from ccp_dml.runs.watcher import Watcher

THRESHOLD = Threshold(0.01, 0.6, Interval(0.5, 0.7))
STATED = ContrastiveLoss(0.2, 1.0)  # between 0.2 and 1.0: beta 0.6, alpha 0.4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"false_match_rate": 1.0}, "false-match rate lies between 0 and 1"),
        ({"confidence": 95}, "confidence of 95 is out of range"),
        ({"confidence": 0.5}, "out of range"),
        ({"pairs": 0}, "0 pairs leave nothing to measure"),
    ],
)
def test_what_makes_no_certificate_is_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        CertificateOptions(**wrong)


def test_the_constraint_is_as_given_else_the_losss_else_at_the_threshold():
    def settled(loss, **options):
        return settle_constraint(loss, CertificateOptions(**options), THRESHOLD)

    assert settled(STATED, beta=0.8).beta == 0.8
    assert settled(STATED).beta == pytest.approx(0.6)
    assert settled(STATED).alpha == pytest.approx(0.4)
    chosen = settled(TripletLoss(0.1))
    assert (chosen.beta, chosen.alpha) == (0.6, None)
    assert settled(TripletLoss(0.1), alpha=0.25).alpha == 0.25
    assert settle_constraint(TripletLoss(0.1), CertificateOptions(), None) is None


@pytest.fixture
def embedding(features):
    config = resolve(["features", "c2"], [f"data.path={features}", "model.embedding_dim=6"]).config
    halves = build_data(config.data)
    return config, build_network(config.model, halves.train, 0), halves


def test_few_pairs_take_few_images_of_both_sides(embedding):
    config, network, halves = embedding
    queries = halves.test.queries
    few = embed_part(config, network, [queries, queries], "test", CertificateOptions(pairs=10))
    assert len(few.labels) <= 20
    assert (few.of_images, few.of_classes) == (128, 8)
    whole = embed_part(config, network, [queries], "test", CertificateOptions())
    assert torch.equal(whole.labels.sort().values, queries.labels.sort().values)
    lengths = whole.embeddings.norm(dim=1)
    assert lengths.max() <= 1 + 1e-6, "normalised as the loss does it"


def test_the_draw_depends_on_the_seed_and_on_the_name_of_the_set(embedding):
    config, network, halves = embedding

    def drawn(name="test", seed=0):
        options = CertificateOptions(pairs=8, seed=seed)
        return embed_part(config, network, [halves.test.queries], name, options).embeddings

    assert torch.equal(drawn(), drawn())
    assert not torch.equal(drawn(), drawn(seed=1))
    assert not torch.equal(drawn(), drawn("validation"))


def test_what_is_embedded_already_is_not_embedded_again(embedding):
    config, network, halves = embedding
    sides, options = [halves.test.queries, halves.train], CertificateOptions(pairs=20)
    known = embed_test(config, network, TestSet(*sides))
    vectors = [found for found, _ in known.sides()]
    expected = embed_part(config, network, sides, "test", options)
    found = embed_part(config, torch.nn.Identity(), sides, "test", options, vectors)
    torch.testing.assert_close(found.embeddings, expected.embeddings)
    assert torch.equal(found.labels, expected.labels)


def test_queries_and_gallery_are_two_sides_of_a_set(embedding):
    _, _, halves = embedding
    queries = halves.test.queries
    sides = Parts(halves.train, TestSet(queries), TestSet(queries, halves.train)).sides()
    assert [len(found) for found in sides.values()] == [1, 1, 2]
    assert list(sides) == ["training", "validation", "test"]
    assert sides["test"][1] is halves.train


def test_a_run_without_maps_has_no_proxies_to_cover_with(tmp_path):
    assert proxies_of_problem(tmp_path, 1) == {}


def test_a_finished_run_is_certified_again(photo_run, monkeypatch):
    folder, _ = photo_run
    written = json.loads((folder / "certificate.json").read_text())
    again = certify_run(folder, CertificateOptions(), Watcher())
    assert json.loads(json.dumps(again)) == written
    monkeypatch.setattr(certify, "stored_test", lambda *_: pytest.fail("other settings may mean other images"))
    moved = certify_run(folder, CertificateOptions(), Watcher(), ["run.workers=0"])
    assert moved["sets"]["test"]["images"] == written["sets"]["test"]["images"]
    assert moved["constraint"] == written["constraint"]


def test_stored_embeddings_are_those_of_the_run_or_none(embedding, tmp_path):
    config, network, halves = embedding
    test, with_gallery = halves.test, TestSet(halves.test.queries, halves.train)
    assert stored_test(tmp_path, test) is None, "there is no file"
    save_embedded(tmp_path, embed_test(config, network, test))
    stored = stored_test(tmp_path, test)
    assert stored is not None
    assert torch.equal(stored.queries[0], embed_test(config, network, test).queries[0])
    assert stored_test(tmp_path, with_gallery) is None, "the gallery is missing"
    fewer = replace(test.queries, positions=test.queries.positions[1:], labels=test.queries.labels[1:])
    assert stored_test(tmp_path, TestSet(fewer)) is None, "these are other images"
    save_embedded(tmp_path, embed_test(config, network, with_gallery))
    assert stored_test(tmp_path, with_gallery) is not None
    assert stored_test(tmp_path, test) is None, "the gallery is too much"
