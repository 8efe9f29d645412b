"""Forward and backward of our losses against pytorch-metric-learning's, on the same tensors.

The values are compared, too: a fast loss that computes something else wins nothing.
"""

import argparse
from collections.abc import Callable

import torch
from pytorch_metric_learning import distances, reducers
from pytorch_metric_learning import losses as pml
from side_by_side import RatioTable, interleaved_medians
from torch import Tensor, nn

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss

CLASSES = 100
DIMENSIONS = 128
# Theirs lists every triplet: beyond this many it needs gigabytes for seconds.
MOST_TRIPLETS = 12_000_000


def pairs_of_losses() -> dict[str, tuple[nn.Module, Callable[..., Tensor]]]:
    """Ours and theirs by name, both on vectors that have unit length already."""
    l2 = distances.LpDistance(normalize_embeddings=False)
    dot = distances.DotProductSimilarity(normalize_embeddings=False)
    cosine_sum = pml.ContrastiveLoss(pos_margin=1.0, neg_margin=0.5, distance=dot, reducer=reducers.SumReducer())
    return {
        "c1": (
            CosineContrastiveLoss(margin=0.5, normalise="none"),
            lambda e, y, r, ry: cosine_sum(e, y, ref_emb=r, ref_labels=ry) / len(e),
        ),
        "c2": (
            ContrastiveLoss(0.2652, 0.5409, normalise="none"),
            by_reference(pml.ContrastiveLoss(pos_margin=0.2652, neg_margin=0.5409, distance=l2)),
        ),
        "ms": (
            MultiSimilarityLoss(14.35, 75.83, 0.66, normalise="none"),
            by_reference(pml.MultiSimilarityLoss(alpha=14.35, beta=75.83, base=0.66, distance=dot)),
        ),
        "triplet": (
            TripletLoss(0.119, normalise="none"),
            by_reference(pml.TripletMarginLoss(margin=0.119, distance=l2)),
        ),
    }


def by_reference(loss: nn.Module) -> Callable[..., Tensor]:
    return lambda e, y, r, ry: loss(e, y, ref_emb=r, ref_labels=ry)


def unit_vectors(rows: int, generator: torch.Generator) -> Tensor:
    """Crowded around one direction, so that all losses have pairs on both sides of their margins."""
    noise = torch.randn(rows, DIMENSIONS, generator=generator) / DIMENSIONS**0.5
    return nn.functional.normalize(noise + torch.eye(1, DIMENSIONS), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller reference sets: under a minute")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    repeats = 3 if options.quick else 15
    generator = torch.Generator().manual_seed(0)

    table = RatioTable(f"Losses, forward + backward, {options.threads} thread(s)", "loss", "batch", "references")
    for batch in (32, 128):
        for references in (800, 4_000) if options.quick else (800, 4_000, 32_000):
            labels = torch.arange(batch) // 4
            ref_labels = torch.arange(references) % CLASSES
            embeddings = unit_vectors(batch, generator).requires_grad_()
            proxies = unit_vectors(references, generator).requires_grad_()
            arguments = (embeddings, labels, proxies, ref_labels)
            for name, (ours, theirs) in pairs_of_losses().items():
                if name == "triplet" and batch * references**2 / CLASSES > MOST_TRIPLETS:
                    continue
                torch.testing.assert_close(ours(*arguments), theirs(*arguments), rtol=1e-4, atol=1e-5)
                seconds = interleaved_medians(
                    lambda ours=ours, given=arguments: ours(*given).backward(),
                    lambda theirs=theirs, given=arguments: theirs(*given).backward(),
                    repeats,
                )
                table.add(name, f"{batch}", f"{references:,}", ours=seconds[0], theirs=seconds[1])
    table.print()


if __name__ == "__main__":
    main()
