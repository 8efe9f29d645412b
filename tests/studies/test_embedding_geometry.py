"""Radii, distances and places of classes under one network."""

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import save_weights
from ccp_dml.records.embeddings import EmbeddedTest
from ccp_dml.studies.embedding_geometry import measure_embedded, read_geometry


def test_measures_of_two_classes_on_a_line():
    embeddings = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [1.0, 0.0], [1.3, 0.0]])
    labels = torch.tensor([0, 0, 0, 1, 1])
    measured = measure_embedded(EmbeddedTest((embeddings, labels), None))
    # Class 0 from its middle: radii .1, .1, 0. Class 1: .3, 0.
    assert measured.covering_radius == pytest.approx(((0.1 + 0.1) / 3 + 0.3 / 2) / 2)
    assert measured.inter_class_distance == pytest.approx((1.0 + 0.9 + 0.8 + 1.3 + 1.2 + 1.1) / 6)
    assert measured.relative_radius == pytest.approx(measured.covering_radius / measured.inter_class_distance)
    assert (measured.map_at_r, measured.classes, measured.images) == (1.0, 2, 5)


def test_queries_and_gallery_are_scored_against_each_other_and_lie_together():
    queries = (torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    gallery = (torch.tensor([[0.9], [0.2]]), torch.tensor([0, 1]))
    measured = measure_embedded(EmbeddedTest(queries, gallery))
    assert measured.map_at_r == 0.0
    assert measured.images == 4
    assert measured.inter_class_distance == pytest.approx((1.0 + 0.2 + 0.1 + 0.7) / 4)


@pytest.mark.parametrize("content", [None, b"", b"half a file"])
def test_measurements_that_cannot_be_read_are_named_with_the_remedy(tmp_path, content):
    file = tmp_path / "c2-repeat0.safetensors"
    if content is None:
        save_weights(file, {"weight": torch.zeros(2)})
    else:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"repeat0\.safetensors holds no measurements .*; delete it, and repeat"):
        read_geometry(file)
