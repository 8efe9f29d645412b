from collections.abc import Callable

import pytest
import torch

from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.runs.illustrations import confusion as confusion_module
from ccp_dml.runs.illustrations.confusion import CLASSES, PAIRS, build_confusion, confusion

Items = Callable[..., LabelledSet]


def spread_out(labels: torch.Tensor, noise: float, seed: int = 0) -> torch.Tensor:
    """Embeddings (N, 8) around one centre per class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(int(labels.max()) + 1, 8, generator=generator)
    return centres[labels] + noise * torch.randn(len(labels), 8, generator=generator)


def test_shares_agree_with_counting_one_by_one(items: Items) -> None:
    labels = torch.tensor([0] * 5 + [1] * 3 + [2] * 7)
    embeddings = spread_out(labels, 1.5)
    found = confusion(TestSet(items(labels)), embeddings)
    distances = torch.cdist(embeddings.double(), embeddings.double())
    for source in range(3):
        members = (labels == source).nonzero().squeeze(1).tolist()
        for target in range(3):
            shares, pairs = [], []
            for query in members:
                order = [row for row in distances[query].argsort().tolist() if row != query][: len(members) - 1]
                shares.append(sum(int(labels[row]) == target for row in order) / len(order))
                pairs += [(float(distances[query, row]), query, row) for row in order if labels[row] == target]
            assert found.share(source, target) == pytest.approx(sum(shares) / len(shares))
            place = ((found.sources == source) & (found.targets == target)).nonzero().squeeze(1)
            assert len(place) == bool(pairs)
            if pairs:
                distance, query, reference = min(pairs)
                assert float(found.distances[place]) == pytest.approx(distance, abs=1e-5)
                assert {int(found.queries[place]), int(found.references[place])} == {query, reference}


def test_a_class_found_in_its_own_neighbourhood_is_its_r_precision(items: Items) -> None:
    labels = torch.arange(5).repeat_interleave(6)
    embeddings = spread_out(labels, 1.0)
    found = confusion(TestSet(items(labels)), embeddings)
    own = sum(found.share(label, label) for label in range(5)) / 5
    assert own == pytest.approx(retrieval_scores(embeddings, labels).r_precision)


def test_the_pair_that_lies_together_comes_first_with_the_images_that_came_closest(items: Items) -> None:
    labels = torch.arange(6).repeat_interleave(4)
    embeddings = 10.0 * torch.eye(6)[labels] + 0.1 * spread_out(labels, 1.0)[:, :6]
    embeddings[labels == 4] = embeddings[labels == 1] + 0.01
    embeddings[19] = embeddings[5]  # an image of class 4 like one of class 1
    found = build_confusion(TestSet(items(labels)), embeddings)
    assert sorted(found["classes"]) == ["class 1", "class 4"]  # nobody else is confused
    first = found["pairs"][0]
    assert {item["class"] for item in first["items"]} == {"class 1", "class 4"}
    assert {item["name"] for item in first["items"]} == {"item 105", "item 119"}
    assert first["distance"] == pytest.approx(0, abs=1e-6)
    assert all(item["picture"].startswith("data:image/") for item in first["items"])
    assert all(share > 0.3 for share in first["shares"])
    assert first["shares"][0] >= first["shares"][1]
    assert found["matrix"][0][1] in first["shares"]


def test_each_pair_stands_once_and_lists_stay_short(items: Items) -> None:
    labels = torch.arange(30).repeat_interleave(4)
    found = build_confusion(TestSet(items(labels, has_pictures=False)), spread_out(labels, 3.0))
    pairs = [frozenset(item["class"] for item in pair["items"]) for pair in found["pairs"]]
    assert len(set(pairs)) == len(pairs) == PAIRS
    assert all(len(pair) == 2 for pair in pairs)
    assert len(found["classes"]) == len(found["matrix"]) == CLASSES
    together = [round(sum(pair["shares"]), 3) for pair in found["pairs"]]
    assert together == sorted(together, reverse=True)
    assert all(item["picture"] is None for pair in found["pairs"] for item in pair["items"])


def test_query_and_gallery(items: Items) -> None:
    query_labels, gallery_labels = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1, 1])  # nothing answers class 2
    references = torch.eye(2)[torch.tensor([0, 0, 1, 1])]
    embeddings = torch.eye(2)[torch.tensor([1, 1, 0])]  # class 0 asks amid class 1
    found = build_confusion(TestSet(items(query_labels), items(gallery_labels)), embeddings, references)
    assert found["classes"] == ["class 0", "class 1"]
    assert found["matrix"] == [[0.0, 1.0], [0.0, 1.0]]


def test_large_sets_are_looked_at_in_part(items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(5).repeat_interleave(8)
    test, embeddings = TestSet(items(labels)), spread_out(labels, 1.0)
    monkeypatch.setattr(confusion_module, "MOST_QUERIES", 10)
    monkeypatch.setattr(confusion_module, "DEPTH", 2)
    found = confusion(test, embeddings)
    assert len(found.shares) <= 20  # ten queries with two neighbours each
    shares = torch.zeros(5, dtype=torch.float64).index_add_(0, found.sources, found.shares)
    assert set(shares[shares > 0].round(decimals=9).tolist()) == {1.0}  # of what was looked at, all is accounted for


def test_classes_that_are_never_confused_and_sets_without_answers_have_nothing_to_tell(items: Items) -> None:
    labels = torch.arange(4).repeat_interleave(3)
    assert build_confusion(TestSet(items(labels)), torch.eye(4)[labels]) == {"classes": [], "matrix": [], "pairs": []}
    lonely = torch.arange(3)
    assert build_confusion(TestSet(items(lonely)), torch.eye(3))["pairs"] == []
