"""Retrieval scores against pytorch-metric-learning's AccuracyCalculator, and the cost of ranking ties exactly.

The scores are compared, too. The calculator runs on its own brute force in torch, because faiss is optional.
"""

import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from side_by_side import Claim, compare, main
from torch import Tensor

from ccp_dml.functional.retrieval import nearest_references, retrieval_scores


def clustered(classes: int, per_class: int, dimensions: int) -> tuple[Tensor, Tensor]:
    """Overlapping classes, so that the scores are neither 0 nor 1."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, dimensions, generator=generator)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return centres[labels] + 1.5 * torch.randn(len(labels), dimensions, generator=generator), labels


def their_scores(embeddings: Tensor, labels: Tensor) -> dict[str, float]:
    calculator = AccuracyCalculator(
        include=("mean_average_precision_at_r", "r_precision", "precision_at_1"),
        k="max_bin_count",
        device=embeddings.device,
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False), batch_size=256),
    )
    return calculator.get_accuracy(embeddings, labels)


def plain_ranking(embeddings: Tensor, k: int, block: int) -> None:
    """Distances and topk, with ties in whatever order: the least that any exact search in torch must do."""
    for queries in embeddings.split(block):
        torch.cdist(queries, embeddings).topk(k, largest=False)


def measure(quick: bool) -> list[Claim]:
    suits = [(100, 20, 128), (1_000, 2, 128)] if quick else [(100, 59, 128), (100, 59, 512), (3_000, 5, 128)]
    scores, ranking = [], []
    for classes, per_class, dimensions in suits:
        embeddings, labels = clustered(classes, per_class, dimensions)
        ours, theirs = retrieval_scores(embeddings, labels), their_scores(embeddings, labels)
        for name, value in (("mean_average_precision_at_r", ours.map_at_r), ("r_precision", ours.r_precision)):
            assert abs(theirs[name] - value) < 1e-4, (name, theirs[name], value)
        times = compare(
            lambda e=embeddings, y=labels: retrieval_scores(e, y),
            lambda e=embeddings, y=labels: their_scores(e, y),
            repeats=3 if quick else 7,
        )
        case = f"{classes:,} classes x {per_class}, {dimensions} dimensions"
        scores.append(Claim("Retrieval scores", case, times, theirs="AccuracyCalculator"))
        times = compare(
            lambda e=embeddings, k=per_class: nearest_references(e, k),
            lambda e=embeddings, k=per_class: plain_ranking(e, k, block=256),
            repeats=3 if quick else 7,
        )
        ranking.append(Claim("Ranking with exact ties", f"{case}, k = {per_class}", times, theirs="plain topk"))
    return scores + ranking


if __name__ == "__main__":
    main(__doc__, measure)
