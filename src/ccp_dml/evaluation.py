"""Embed labelled items, score the embeddings, and average scores over runs."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from ccp_dml.errors import NonFiniteError, UserError, no_tensor
from ccp_dml.foundation.modes import inference
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.functional.retrieval import RetrievalScores, retrieval_scores

SCORES = ("map_at_r", "precision_at_1", "r_precision")
"""Names of the scores, in the order in which files hold them."""

SCORE_TITLES = {"map_at_r": "MAP@R", "r_precision": "P@R", "precision_at_1": "P@1"}
"""What tables and pages call the scores, in the order in which they show them."""


@torch.no_grad()
def embed(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    raw: bool = False,
    processes: Processes = ALONE,
) -> tuple[Tensor, Tensor]:
    """Embed all batches, in their order, with the network in inference mode: embeddings (N, D) and labels (N,).

    Afterwards every layer is in the mode it was in before, so that training can go on.

    Args:
        network: an `Embedder`, or any module that embeds a batch.
        batches: (inputs, labels) pairs.
        raw: un-normalised embeddings, as k-center wants them (D6).
        processes: each embeds batches of its own; all get the embeddings of all, in rank order.
    """
    device = next((value.device for value in network.parameters()), torch.device("cpu"))
    if raw and not hasattr(network, "raw"):
        raise UserError(f"{type(network).__name__} has no method `raw`, which gives embeddings before normalisation.")
    transform: Callable[[Tensor], Tensor] = cast(Callable[[Tensor], Tensor], network.raw) if raw else network
    embeddings, labels = [], []
    with inference(network):
        for batch in batches:
            if isinstance(batch, Tensor) or len(batch) != 2:  # a tensor of two rows would pass for a pair
                raise UserError(
                    "every batch must be a pair (inputs, labels): where there are no labels, give zeros in their place."
                )
            inputs, batch_labels = batch
            for name, value in (("inputs", inputs), ("labels", batch_labels)):
                if not isinstance(value, Tensor):
                    raise UserError(f"the batches' {no_tensor(name, value)}.")
            embeddings.append(transform(inputs.to(device, non_blocking=True)))
            labels.append(batch_labels)
    if not embeddings and processes.count == 1:
        raise UserError("there are no batches to embed: give at least one pair (inputs, labels).")
    return processes.gather_rows(embeddings, device), processes.gather_rows(labels, device)


def score(
    network: nn.Module,
    queries: Iterable[tuple[Tensor, Tensor]],
    gallery: Iterable[tuple[Tensor, Tensor]] | None = None,
    processes: Processes = ALONE,
) -> RetrievalScores:
    """Score a network: its queries against a gallery, or against one another.

    Several processes embed batches of their own and look for neighbours of a part of the queries; all get the same
    scores, equal to those of one process to the last bit.
    """
    embeddings, labels = embed(network, queries, processes=processes)
    ref_embeddings, ref_labels = (None, None) if gallery is None else embed(network, gallery, processes=processes)
    for found in (embeddings, ref_embeddings):
        if found is not None and not found.isfinite().all():
            raise NonFiniteError("The network gives embeddings that hold NaN or infinity, which cannot be scored.")

    def join(own: Tensor) -> Tensor:
        return processes.gather_rows([own], own.device)

    sides = (embeddings, labels, ref_embeddings, ref_labels)
    return processes.same(retrieval_scores(*sides, part=processes.share_of, join=join))


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs, with their number (D29)."""

    mean: float
    sd: float | None  # None: a single run has none
    n: int


CONFIDENCE = 0.95

Pair = TypeVar("Pair", bound=Hashable)


@dataclass(frozen=True)
class PairedDifference:
    """What one method has over another in runs of equal fold and seed: chance that both share cancels out."""

    mean: float
    interval: tuple[float, float] | None  # 95 %, Student's t over the pairs; None for a single pair
    pairs: int

    @property
    def is_clear(self) -> bool:
        """Tell whether the interval excludes zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


def paired_difference(scores: Mapping[Pair, float], baseline: Mapping[Pair, float]) -> PairedDifference | None:
    """Subtract the `baseline` from `scores`, pair by pair; None if they have no pair in common."""
    gaps = [scores[pair] - baseline[pair] for pair in scores if pair in baseline]
    if not gaps:
        return None
    found = spread(gaps)
    return PairedDifference(found.mean, mean_interval(found), found.n)


@dataclass(frozen=True)
class Lead:
    """What the best of several methods has over the others, in runs of equal fold and seed."""

    second: str  # the method with the next highest mean
    difference: PairedDifference | None  # to the second; None: they have no such runs in common
    level_with: tuple[str, ...]  # the methods that it is not better than by more than chance explains

    @property
    def is_clear(self) -> bool:
        return not self.level_with


def lead_over(best: str, scores: Mapping[str, Mapping[Pair, float]]) -> Lead:
    """Compare the `best` of at least two methods with every other, pair by pair; `scores` are by method."""
    others = {method: mean(found.values()) for method, found in scores.items() if method != best}
    gaps = {method: paired_difference(scores[best], scores[method]) for method in others}
    second = max(others, key=lambda method: others[method])
    level = (method for method, gap in gaps.items() if gap is None or not gap.is_clear or gap.mean < 0)
    return Lead(second, gaps[second], tuple(level))


def mean_interval(found: Spread) -> tuple[float, float] | None:
    """Compute the 95 % confidence interval of a mean by Student's t; None for a single value."""
    from scipy import special  # takes a while to import, and an evaluation does without

    if found.sd is None:
        return None
    reach = float(special.stdtrit(found.n - 1, (1 + CONFIDENCE) / 2)) * found.sd / sqrt(found.n)
    return found.mean - reach, found.mean + reach


def spread(values: Sequence[float]) -> Spread:
    """Average `values`, one per run, and measure how much they vary."""
    return Spread(mean(values), stdev(values) if len(values) > 1 else None, len(values))
