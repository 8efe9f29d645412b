"""Retrieval scores against pytorch-metric-learning's AccuracyCalculator, and exact search against faiss.

Scores must agree to 1e-5 (the calculator ranks by distances in float32, which confuse near-ties), and neighbours in all
but near-ties. "trained" means that most items lie next to their class, "untrained" that labels say nothing about
places.
"""

import faiss
import torch
import torch.nn.functional as F
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from side_by_side import Claim, compare, main
from torch import Tensor

from ccp_dml.functional.retrieval import nearest_references, retrieval_scores

DIMENSIONS = 128
METRICS = {"mean_average_precision_at_r": "map_at_r", "r_precision": "r_precision", "precision_at_1": "precision_at_1"}


def embedded(sizes: Tensor, trained: bool) -> tuple[Tensor, Tensor]:
    """Unit vectors (N, 128) of classes of `sizes`; untrained ones lie in a narrow cone, as those of a new network."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)
    spread = torch.linspace(1.0, 0.05, DIMENSIONS)
    noise = torch.randn(len(labels), DIMENSIONS, generator=generator)
    if not trained:
        return F.normalize(torch.randn(DIMENSIONS, generator=generator) + 0.1 * noise * spread), labels
    centres = torch.randn(len(sizes), DIMENSIONS, generator=generator)
    return F.normalize((centres[labels] + 1.2 * noise) * spread), labels


def sizes_as_in_sop(images: int) -> Tensor:
    """Class sizes of 2 to 12, 5.3 in the mean, as in the test half of Stanford Online Products."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(2, 9, (round(images / 5.347),), generator=generator)
    sizes[: len(sizes) // 20] = 12
    return sizes


def score_claim(case: str, embeddings: Tensor, labels: Tensor, repeats: int, at_least: float | None) -> Claim:
    calculator = AccuracyCalculator(include=tuple(METRICS), k="max_bin_count", device=embeddings.device)
    ours, theirs = retrieval_scores(embeddings, labels), calculator.get_accuracy(embeddings, labels)
    for their_name, name in METRICS.items():
        assert abs(theirs[their_name] - getattr(ours, name)) < 1e-5, (name, theirs[their_name], ours)
    pairs = compare(
        lambda: retrieval_scores(embeddings, labels), lambda: calculator.get_accuracy(embeddings, labels), repeats
    )
    return Claim("Retrieval scores", case, pairs, theirs="AccuracyCalculator with faiss", at_least=at_least)


def search_claim(queries: int, references: int, repeats: int) -> Claim:
    generator = torch.Generator().manual_seed(0)
    vectors = F.normalize(torch.randn(queries + references, DIMENSIONS, generator=generator))
    asked, searched = vectors[:queries], vectors[queries:]
    index = faiss.IndexFlatL2(DIMENSIONS)
    index.add(searched.numpy())
    _, found = nearest_references(asked, 10, searched)
    same = (found == torch.from_numpy(index.search(asked.numpy(), 10)[1])).double().mean()
    assert same > 0.999, same
    pairs = compare(lambda: nearest_references(asked, 10, searched), lambda: index.search(asked.numpy(), 10), repeats)
    case = f"{queries:,} queries, {references:,} references, 10 nearest"
    return Claim("Exact search", case, pairs, theirs="faiss IndexFlatL2", at_least=1.0)


def measure(quick: bool) -> list[Claim]:
    faiss.omp_set_num_threads(torch.get_num_threads())
    images, repeats = (10_000, 3) if quick else (60_502, 3)
    claims = []
    for trained in (True, False):
        state = "trained" if trained else "untrained"
        many = embedded(sizes_as_in_sop(images), trained)
        case = f"{len(many[1]):,} images in classes of 2 to 12, {state}"
        claims.append(score_claim(case, *many, repeats, None if quick else 3.0))
        few = embedded(torch.full((10,), 200 if quick else 1000), trained)
        claims.append(score_claim(f"{len(few[1]):,} images in 10 classes, {state}", *few, repeats, None))
    searches = [(1, 10_000), (1_000, 10_000)] if quick else [(1, 100_000), (128, 100_000), (4_000, 100_000)]
    return claims + [search_claim(queries, references, repeats) for queries, references in searches]


if __name__ == "__main__":
    main(__doc__, measure)
