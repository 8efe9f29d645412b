"""One set of embeddings, small enough that every pair can be looked at."""

import pytest
import torch

from ccp_dml.certificate.constraint import Constraint
from ccp_dml.certificate.set_certificate import EmbeddedSet, certify_set, choose_threshold

PLACES = torch.tensor([[0.0], [0.2], [1.0], [1.5]])
LABELS = torch.tensor([0, 0, 1, 1])
"""Within classes 0.2 and 0.5 apart; between them 0.8, 1.0, 1.3 and 1.5."""


def made(embeddings=PLACES, labels=LABELS):
    draw = torch.Generator().manual_seed(0)
    return EmbeddedSet.make(embeddings, labels, ("a", "b"), draw, of_images=40, of_classes=7)


def at(beta):
    return Constraint(beta, None, "distance", "")


def test_a_set_holds_double_precision_and_the_pairs_it_drew():
    one, other = made(), made()
    assert one.embeddings.dtype == torch.float64
    assert len(one.drawn.same_by_images) == 2
    assert torch.equal(one.drawn.different_by_images, other.drawn.different_by_images)


def test_both_kinds_of_errors_are_counted_at_the_constraint_and_at_the_threshold():
    part = made()
    threshold = choose_threshold(part, wanted=0.5, confidence=0.95)
    assert 1.0 <= threshold.beta < 1.3, "two of the four different pairs are matched"
    found = certify_set(part, at(0.3), threshold, 0.95)
    assert found.misses.by_images.estimate == 0.5  # 0.5 is farther than 0.3, 0.2 is not
    assert found.false_matches.by_images.estimate == 0.0
    assert found.at_threshold["misses"].by_images.estimate == 0.0
    assert found.at_threshold["false_matches"].by_images.estimate == pytest.approx(0.5)
    assert certify_set(part, at(0.3), None, 0.95).at_threshold is None


def test_it_tells_what_it_was_drawn_from_and_how_long_embeddings_are():
    found = certify_set(made(), at(0.3), None, 0.95)
    assert (found.images, found.classes, found.of_images, found.of_classes) == (4, 2, 40, 7)
    assert found.unit_length == 0.5  # 1.0 and 1.5


def test_classes_are_covered_by_their_images_and_by_proxies_if_there_are_any():
    found = certify_set(made(), at(0.3), None, 0.95, {"b": torch.tensor([[1.1]])})
    assert set(found.covering.radii) == {"a", "b"}
    assert found.covering_by_proxies.radii == {"b": pytest.approx(0.4)}
    assert certify_set(made(), at(0.3), None, 0.95, {}).covering_by_proxies is None


def test_one_class_gives_no_threshold():
    assert choose_threshold(made(labels=torch.zeros(4, dtype=torch.int64)), 0.5, 0.95) is None
