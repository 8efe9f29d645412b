"""Forward and backward of our losses against pytorch-metric-learning's, on the same tensors at the scale of SOP.

Values and gradients are compared, too: a fast loss that computes something else wins nothing.
"""

from collections.abc import Callable

import torch
from pytorch_metric_learning import distances, reducers
from pytorch_metric_learning import losses as pml
from side_by_side import Claim, compare, main
from torch import Tensor, nn
from torch.nn.functional import normalize

from ccp_dml.losses import ContrastiveLoss, CosineContrastiveLoss, MultiSimilarityLoss, TripletLoss

GOAL = 1
BATCH_CLASSES, IMAGES, PROXIES, DIMENSIONS = 8, 4, 4, 128
KIND = 20  # classes that are alike, as products of one kind are: the negatives that still count
GOALS = {"C1": (5.0, 1.0), "C2": (5.0, 1.0), "MS": (4.0, 1.5), "triplet": (15.0, 1.0)}
"""The wanted ratios: pytorch-metric-learning to ours, ours to three dense products."""

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Scene = tuple[Tensor, Tensor, Tensor, Tensor]
WHAT_MS_TAKES = (
    "MS feels every pair, so that nothing can be left out: its three products are two thirds of the time, the "
    "exponentials of all pairs a fifth."
)


def pairs_of_losses() -> dict[str, tuple[nn.Module, Loss]]:
    """Ours and theirs by name, with SOP's margins; both normalise."""
    cosine_sum = pml.ContrastiveLoss(
        pos_margin=1.0, neg_margin=0.5, distance=distances.CosineSimilarity(), reducer=reducers.SumReducer()
    )
    return {
        "C1": (CosineContrastiveLoss(0.5), lambda e, y, r, ry: cosine_sum(e, y, ref_emb=r, ref_labels=ry) / len(e)),
        "C2": (
            ContrastiveLoss(0.2858, 0.5130),
            by_reference(pml.ContrastiveLoss(pos_margin=0.2858, neg_margin=0.5130)),
        ),
        "MS": (MultiSimilarityLoss(2.0, 40.0, 0.5), by_reference(pml.MultiSimilarityLoss(alpha=2, beta=40, base=0.5))),
        "triplet": (TripletLoss(0.0451), by_reference(pml.TripletMarginLoss(margin=0.0451))),
    }


def by_reference(loss: nn.Module) -> Loss:
    return lambda e, y, r, ry: loss(e, y, ref_emb=r, ref_labels=ry)


def trained_scene(classes: int, seed: int = 0) -> Scene:
    """Anchors near their own proxies and near those of some other classes, as in training.

    All vectors are longer than 1: there, our clip and their L2 normalisation do the same.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, DIMENSIONS, generator=generator).div_(DIMENSIONS**0.5)

    def scattered(around: Tensor) -> Tensor:  # in place: there may be millions
        vectors = noise(len(around)).mul_(0.25).add_(around)
        lengths = torch.rand(len(around), 1, generator=generator).mul_(2).add_(1.2)
        return vectors.mul_(lengths / vectors.norm(dim=1, keepdim=True)).requires_grad_()

    kinds = normalize(noise(-(-classes // KIND)), dim=1)
    centres = normalize(kinds[torch.arange(classes) // KIND] + 0.2 * noise(classes), dim=1)
    ref_labels = torch.arange(classes).repeat_interleave(PROXIES)
    labels = torch.randperm(classes, generator=generator)[:BATCH_CLASSES].repeat_interleave(IMAGES)
    return scattered(centres[labels]), labels, scattered(centres[ref_labels]), ref_labels


def untrained_scene(classes: int) -> Scene:
    """Everything in one place, as in an untrained network: every negative counts."""
    generator = torch.Generator().manual_seed(0)
    _, labels, _, ref_labels = trained_scene(classes)

    def scattered(rows: int) -> Tensor:
        return (
            2 * torch.eye(1, DIMENSIONS) + 0.01 * torch.randn(rows, DIMENSIONS, generator=generator)
        ).requires_grad_()

    return scattered(len(labels)), labels, scattered(len(ref_labels)), ref_labels


def step(loss: Loss, scene: Scene) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
    """One forward and backward pass: value, gradient of the embeddings, gradient of the references."""
    embeddings, _, references, _ = scene

    def run() -> tuple[Tensor, Tensor, Tensor]:
        embeddings.grad = references.grad = None
        value = loss(*scene)
        value.backward()
        assert embeddings.grad is not None
        assert references.grad is not None
        return value.detach(), embeddings.grad, references.grad

    return run


def dense_products(scene: Scene) -> Callable[[], object]:
    """The product of a forward pass and the two of its backward pass: what a dense loss cannot do without."""
    anchors, references = scene[0].detach(), scene[2].detach()
    weights = torch.randn(len(anchors), len(references), generator=torch.Generator().manual_seed(0))
    return lambda: (anchors @ references.T, weights @ references, weights.T @ anchors)


def check(ours: Callable[[], tuple[Tensor, ...]], theirs: Callable[[], tuple[Tensor, ...]]) -> None:
    """Theirs cancels digits of small distances in float32, so their gradients have four or five."""
    for mine, other in zip(ours(), theirs(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=5e-4 * float(other.abs().max()))


def measure(quick: bool) -> list[Claim]:
    classes, repeats = (1_000, 5) if quick else (8_489, 25)
    claims, of_products, untrained = [], [], []
    scene, crowd = trained_scene(classes), untrained_scene(classes)
    for name, (ours, theirs) in pairs_of_losses().items():
        case = f"{name}, 32 x {classes * PROXIES:,} x {DIMENSIONS}"
        faster, dearer = (None, None) if quick else GOALS[name]
        mine, other = step(ours, scene), step(theirs, scene)
        check(mine, other)
        times = compare(mine, other, repeats)
        note = WHAT_MS_TAKES if name == "MS" else ""
        claims.append(Claim("Losses, forward + backward", case, times, at_least=faster, note=note))
        times = compare(dense_products(scene), mine, repeats)
        of_products.append(
            Claim("Losses, forward + backward", case, times, ours="three dense products", theirs="ours", at_most=dearer)
        )
        mine, other = step(ours, crowd), step(theirs, crowd)
        check(mine, other)
        untrained.append(Claim("Losses where every negative counts", case, compare(mine, other, max(3, repeats // 4))))
    return claims + of_products + untrained


if __name__ == "__main__":
    main(__doc__, measure)
