import base64
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image

from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.functional.retrieval import retrieval_scores
from ccp_dml.runs.illustrations.gallery import average_precision, build_gallery
from ccp_dml.runs.illustrations.pictures import THUMBNAIL, thumbnail

Items = Callable[..., LabelledSet]


def noisy(labels: torch.Tensor, noise: float, seed: int = 0) -> torch.Tensor:
    """Embeddings (N, 8) around one centre per class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(int(labels.max()) + 1, 8, generator=generator)
    return centres[labels] + noise * torch.randn(len(labels), 8, generator=generator)


def chosen(gallery: dict[str, Any], reason: str) -> list[dict[str, Any]]:
    return [query for query in gallery["queries"] if query["chosen"] == reason]


def test_average_precision_by_hand() -> None:
    hits = torch.tensor([[True, False, True, True], [False, False, False, True], [True, True, True, True]])
    # R = 3: (1 + 2/3) / 3, the hit at rank 4 does not count; R = 2: none; R = 9 is cut at the four neighbours.
    assert average_precision(hits, torch.tensor([3, 2, 9])).tolist() == pytest.approx([(1 + 2 / 3) / 3, 0.0, 1.0])


def test_average_precision_of_all_queries_is_the_map_at_r_of_retrieval_scores(items: Items) -> None:
    labels = torch.arange(6).repeat_interleave(5)
    embeddings = noisy(labels, 1.0)
    gallery = build_gallery(TestSet(items(labels)), embeddings, queries=30)
    assert len(gallery["queries"]) == 30
    mean = sum(query["average_precision"] for query in gallery["queries"]) / 30
    assert mean == pytest.approx(retrieval_scores(embeddings, labels).map_at_r, abs=1e-5)


def test_half_are_the_worst_a_sixth_the_best_the_rest_random(items: Items) -> None:
    labels = torch.arange(20).repeat_interleave(6)
    gallery = build_gallery(TestSet(items(labels)), noisy(labels, 0.8), queries=12)
    assert [query["chosen"] for query in gallery["queries"]] == ["worst"] * 6 + ["best"] * 2 + ["random"] * 4
    worst, best = chosen(gallery, "worst"), chosen(gallery, "best")
    assert max(q["average_precision"] for q in worst) < min(q["average_precision"] for q in best)
    rows = [query["row"] for query in gallery["queries"]]
    assert len(set(rows)) == 12


def test_one_hard_class_does_not_fill_the_gallery(items: Items) -> None:
    labels = torch.arange(10).repeat_interleave(8)
    embeddings = noisy(labels, 0.3)
    embeddings[labels == 4] = noisy(labels, 9.0)[labels == 4]
    gallery = build_gallery(TestSet(items(labels)), embeddings)
    assert len({query["class"] for query in chosen(gallery, "worst")}) == 6
    assert chosen(gallery, "worst")[0]["class"] == "class 4"


def test_the_very_worst_and_best_are_among_them(items: Items) -> None:
    labels = torch.arange(8).repeat_interleave(4)
    embeddings = 10.0 * torch.eye(8)[labels]
    embeddings[5] = 10.0 * torch.eye(8)[3]  # one item of class 1 lies amid class 3
    for seed in range(10):
        gallery = build_gallery(TestSet(items(labels)), embeddings, queries=6, seed=seed)
        [stray] = [query for query in gallery["queries"] if query["row"] == 5]
        assert stray["average_precision"] == 0
        assert not any(item["right"] for item in stray["neighbours"][:3])


def test_random_queries_are_the_same_for_another_network_and_others_for_another_seed(items: Items) -> None:
    labels = torch.arange(20).repeat_interleave(6)
    test = TestSet(items(labels))
    rows = [
        [query["row"] for query in chosen(build_gallery(test, noisy(labels, noise), seed=seed), "random")]
        for noise, seed in ((0.1, 0), (3.0, 0), (0.1, 1))
    ]
    assert rows[0] == rows[1] != rows[2]


def test_neighbours_are_judged_ordered_and_never_the_query_itself(items: Items) -> None:
    labels = torch.arange(5).repeat_interleave(4)
    embeddings = noisy(labels, 1.0)
    for query in build_gallery(TestSet(items(labels)), embeddings, neighbours=7)["queries"]:
        distances = torch.linalg.vector_norm(embeddings - embeddings[query["row"]], dim=1)
        distances[query["row"]] = torch.inf
        order = distances.argsort()[:7]
        assert [item["row"] for item in query["neighbours"]] == order.tolist()
        assert [item["distance"] for item in query["neighbours"]] == pytest.approx(distances[order].tolist(), abs=1e-5)
        assert [item["right"] for item in query["neighbours"]] == (labels[order] == labels[query["row"]]).tolist()
        assert query["class"] == f"class {labels[query['row']]}"
        assert query["name"] == f"item {query['row'] + 100}"  # by position in the source, not by row


def test_duplicates_of_a_query_stay_in_while_it_goes(items: Items) -> None:
    labels = torch.arange(4).repeat_interleave(5)
    embeddings = torch.zeros(20, 3)  # all alike: a query is not among its own nearest by distance alone
    for query in build_gallery(TestSet(items(labels)), embeddings, neighbours=6)["queries"]:
        expected = [row for row in range(20) if row != query["row"]][:6]
        assert [item["row"] for item in query["neighbours"]] == expected


def test_query_and_gallery(items: Items) -> None:
    query_labels, gallery_labels = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1, 2, 2])  # nothing answers 3
    references = noisy(gallery_labels, 0.01)
    embeddings = noisy(torch.tensor([0, 1, 2, 2]), 0.01)
    gallery = build_gallery(TestSet(items(query_labels), items(gallery_labels)), embeddings, references, neighbours=2)
    assert sorted(query["class"] for query in gallery["queries"]) == ["class 0", "class 1", "class 2"]
    assert all(item["right"] for query in gallery["queries"] for item in query["neighbours"])
    assert {query["average_precision"] for query in gallery["queries"]} == {1.0}


def test_a_small_test_set_shows_what_it_has(items: Items) -> None:
    labels = torch.tensor([0, 0, 1])
    gallery = build_gallery(TestSet(items(labels)), noisy(labels, 0.1), queries=12, neighbours=8)
    assert sorted(query["row"] for query in gallery["queries"]) == [
        0,
        1,
    ]  # the single member of class 1 cannot be found
    assert all(len(query["neighbours"]) == 2 for query in gallery["queries"])
    assert build_gallery(TestSet(items(torch.tensor([0, 1]))), torch.eye(2))["queries"] == []


def test_it_is_json_with_small_embedded_pictures(items: Items) -> None:
    labels = torch.arange(5).repeat_interleave(4)
    gallery = build_gallery(TestSet(items(labels)), noisy(labels, 1.0))
    assert json.loads(json.dumps(gallery)) == gallery
    scheme, data = gallery["queries"][0]["picture"].split(",")
    assert scheme == "data:image/webp;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (THUMBNAIL, THUMBNAIL * 120 // 160)
    assert len(json.dumps(gallery)) < 400_000


def test_features_have_no_pictures(items: Items) -> None:
    labels = torch.arange(5).repeat_interleave(4)
    gallery = build_gallery(TestSet(items(labels, has_pictures=False)), noisy(labels, 1.0))
    assert {item["picture"] for query in gallery["queries"] for item in (query, *query["neighbours"])} == {None}


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_every_kind_of_picture_becomes_a_thumbnail(mode: str) -> None:
    assert thumbnail(Image.new("RGB", (300, 20), "red").convert(mode)).startswith("data:image/webp;base64,")
