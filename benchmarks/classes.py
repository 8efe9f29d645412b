"""Training with a thousand to a million classes: a whole step, its memory, and a reselection of the proxies.

A step embeds 32 synthetic feature vectors with a linear layer, takes the contrastive loss against one or four proxies
per class, and updates layer and proxies. Ours visits only the proxies that move (`optim.proxies_by_rows`); beside it
stand the same with torch's fused Adam, and what pytorch-metric-learning has for it: its ContrastiveLoss against a
matrix of proxies and its ProxyAnchorLoss, both with torch's Adam, as long as they fit. Memory is the peak of a process
of its own (Linux alone can tell).
"""

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from pytorch_metric_learning import losses as pml
from side_by_side import SET_BACK, Claim, compare, in_own_process, main, peak_of, resident
from torch import Tensor, nn

from ccp_dml.functional.row_adam import TOUCHED, RowAdam, steps_until_rest
from ccp_dml.functional.row_gradients import clip_gradients
from ccp_dml.losses import ContrastiveLoss
from ccp_dml.objectives import ProxyObjective
from ccp_dml.proxies import NUMBERS_OF_A_CHUNK, ClassProxies, classes_at_once, select_in_chunks

FEATURES, DIMENSIONS, BATCH_CLASSES, IMAGES = 32, 128, 8, 4
MARGINS = (0.2858, 0.5130)  # those of SOP
SIZES = (1_000, 10_000, 100_000, 1_000_000)
MOST_REFERENCES = {"by rows": 4_000_000, "dense": 1_000_000, "contrastive": 1_000_000, "proxy anchor": 1_000_000}
"""What fits into 10 GB beside ours. Of all pairs, pytorch-metric-learning's ContrastiveLoss lists the positions."""

CALLS_TO_SETTLE = 3


class Training:
    """A small training with very many classes.

    Args:
        classes, per_class: C and P.
        way: "by rows", "dense", "contrastive" or "proxy anchor"; see above.
    """

    def __init__(self, classes: int, per_class: int, way: str) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.classes, self.per_class = classes, per_class
        self.centres = torch.randn(classes, FEATURES, generator=self.generator)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = nn.Linear(FEATURES, DIMENSIONS)
            self.objective = self.objective_of(way)
        groups = [*self.network.parameters(), *self.objective.parameters()]
        settings = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "fused": True}
        self.optimizer = RowAdam(groups, **settings) if way == "by rows" else torch.optim.Adam(groups, **settings)
        self.trained = groups

    def objective_of(self, way: str) -> nn.Module:
        if way == "proxy anchor":
            return pml.ProxyAnchorLoss(self.classes, DIMENSIONS)
        proxies = ClassProxies(self.classes, self.per_class, DIMENSIONS, gradient_by_rows=way == "by rows")
        with torch.no_grad():
            proxies.place(self.network(self.centres).unsqueeze(1).expand(-1, self.per_class, -1))
            proxies.vectors.add_(0.1 * torch.randn(proxies.vectors.shape, generator=self.generator))
        if way == "contrastive":
            return AgainstProxies(pml.ContrastiveLoss(*MARGINS), proxies)
        return ProxyObjective(ContrastiveLoss(*MARGINS), proxies, pair_weight=0.0)

    def images(self, labels: Tensor) -> Tensor:
        noise = torch.randn(len(labels), FEATURES, generator=self.generator)
        return self.centres[labels] + 0.3 * noise

    def step(self) -> Tensor:
        chosen = torch.randint(self.classes, (BATCH_CLASSES,), generator=self.generator)
        labels = chosen.repeat_interleave(IMAGES)
        loss = self.objective(self.network(self.images(labels)), labels)
        self.optimizer.zero_grad()
        loss.backward()
        clip_gradients(self.trained, 10.0)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def reselect(self) -> None:
        """Move the proxies to the farthest of a fresh pool, two images per class more than there are proxies.

        The pool comes in chunks of classes, as in a run.
        """
        size = self.per_class + 2

        def embedded(block: Tensor) -> Tensor:
            return self.network(self.images(block.repeat_interleave(size))).unflatten(0, (-1, size))

        at_once = classes_at_once(NUMBERS_OF_A_CHUNK, size, DIMENSIONS, BATCH_CLASSES * IMAGES)
        chunks = (embedded(block) for block in torch.arange(self.classes).split(at_once))
        proxies = self.objective.proxies
        proxies.place(select_in_chunks(chunks, proxies.vectors.detach(), self.classes, self.per_class).vectors)


class AgainstProxies(nn.Module):
    """A loss of pytorch-metric-learning against a matrix of proxies."""

    def __init__(self, loss: nn.Module, proxies: ClassProxies) -> None:
        super().__init__()
        self.loss, self.proxies = loss, proxies

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        references, ref_labels = self.proxies()
        return self.loss(embeddings, labels, ref_emb=references, ref_labels=ref_labels)


def settled(classes: int, per_class: int, way: str) -> Callable[[], Tensor]:
    """A step in the middle of a training: as many proxies move by rows as have had a gradient in the last 152 steps."""
    training = Training(classes, per_class, way)
    for _ in range(CALLS_TO_SETTLE):
        training.step()
    for state in (state for state in training.optimizer.state.values() if TOUCHED in state):
        per_step = int((state[TOUCHED] > 0).sum()) / CALLS_TO_SETTLE
        moving = int(per_step * steps_until_rest(0.9, torch.float32))
        state[TOUCHED][torch.randint(classes * per_class, (moving,), generator=training.generator)] = CALLS_TO_SETTLE
    return training.step


def one_peak(classes: int, per_class: int, way: str) -> None:
    """Print the peak of some steps, in bytes, and all that they keep included."""
    torch.set_num_threads(1)
    settled(100, per_class, way)  # whatever is loaded by a first call
    before = resident("VmRSS")
    print(peak_of(settled(classes, per_class, way)) - before)


def memory_of(classes: int, per_class: int, way: str) -> float:
    return in_own_process(__file__, "--one", str(classes), str(per_class), way)


OTHERS = {
    "dense": "the same with torch's Adam",
    "contrastive": "pytorch-metric-learning, ContrastiveLoss",
    "proxy anchor": "pytorch-metric-learning, ProxyAnchorLoss",
}


def measure(quick: bool, sizes: Sequence[int] = SIZES) -> list[Claim]:
    claims: list[Claim] = []
    for per_class in (1, 4):
        fitting = [size for size in sizes[: 2 if quick else None] if size * per_class <= MOST_REFERENCES["by rows"]]
        for classes in fitting:
            case, is_large = f"{classes:,} classes x {per_class}", classes >= 100_000
            for way, words in OTHERS.items():
                if classes * per_class > MOST_REFERENCES[way] or (way == "proxy anchor" and per_class > 1):
                    continue
                ours, theirs = (settled(classes, per_class, each) for each in ("by rows", way))
                pairs = compare(ours, theirs, repeats=3 if is_large else 5, calls=2)
                claims.append(Claim("A training step, time", case, pairs, ours="ours by rows", theirs=words))
                del ours, theirs  # a million proxies take gigabytes
                if SET_BACK.exists() and not quick and is_large:
                    peaks = [(memory_of(classes, per_class, "by rows"), memory_of(classes, per_class, way))]
                    claims.append(Claim("A training step, memory", case, peaks, ours="ours by rows", theirs=words))
            training = Training(classes, per_class, "by rows")
            pairs = compare(training.step, training.reselect, repeats=1 if is_large else 3)
            claims.append(Claim("A reselection", case, pairs, ours="a step", theirs="a reselection of all proxies"))
            del training
        for small, large in pairwise(fitting):
            steps = (settled(classes, per_class, "by rows") for classes in (small, large))
            pairs = compare(*steps, repeats=5, calls=2)
            case = f"from {small:,} to {large:,} classes x {per_class}"
            claims.append(Claim("Growth of a step", case, pairs, ours="the smaller", theirs="the larger", at_most=10.0))
    return claims


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_peak(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main(__doc__, measure)
