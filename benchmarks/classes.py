"""Training with a thousand to a million classes: a whole step, its memory, and a reselection of the proxies.

A step embeds 32 synthetic feature vectors with a linear layer, takes the contrastive loss against one or four proxies
per class, and updates layer and proxies. Ours visits only the proxies that move (`optim.proxies_by_rows`); beside it
stand the same with torch's fused Adam, and what pytorch-metric-learning has for it: its ContrastiveLoss against a
matrix of proxies and its ProxyAnchorLoss, both with torch's Adam, until they die for want of memory. Memory is the peak
of a process of its own (Linux alone can tell).

    python benchmarks/classes.py --classes 1000000 --proxies 4     # a part of it
"""

import argparse
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import torch
from pytorch_metric_learning import losses as pml
from rich.console import Console
from rich.table import Table
from side_by_side import SET_BACK, Claim, compare, in_own_process, peak_of, resident, show
from torch import Tensor, nn

from ccp_dml.functional.row_adam import TOUCHED, RowAdam, steps_until_rest
from ccp_dml.functional.row_gradients import clip_gradients
from ccp_dml.losses import ContrastiveLoss
from ccp_dml.objectives import ProxyObjective
from ccp_dml.proxies import NUMBERS_OF_A_CHUNK, ClassProxies, classes_at_once

FEATURES, DIMENSIONS, BATCH_CLASSES, IMAGES = 32, 128, 8, 4
MARGINS = (0.2858, 0.5130)  # those of SOP
SIZES, PROXIES = (1_000, 10_000, 100_000, 1_000_000), (1, 4)
LARGE = 100_000  # classes from which on memory is measured, and fewer repeats are
MOST_TOGETHER = 1_000_000  # references with which two trainings fit into one process, to be measured in turns
MOST_MEMORY = 12
"""Gigabytes that a training may hold before it counts as dead: half of a machine of 24 GB."""

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
        proxies.place(proxies.choose_from(chunks, proxies.vectors.detach()).vectors)


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


def alone(what: str, classes: int, per_class: int, way: str, most: int) -> None:
    """Print the "memory" of a step, in bytes and with all that the training keeps, or its "time"; inf if it dies."""
    torch.set_num_threads(1)
    settled(100, per_class, way)  # whatever is loaded by a first call
    before = resident("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (before + (most << 30), -1))
    try:
        step = settled(classes, per_class, way)
        print(peak_of(step) - before if what == "memory" else _seconds_of(step))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        print(math.inf)


def _seconds_of(step: Callable[[], object], calls: int = 3) -> float:
    started = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - started) / calls


@cache
def measured_alone(what: str, classes: int, per_class: int, way: str, most: int) -> float:
    return in_own_process(__file__, "--alone", what, str(classes), str(per_class), way, str(most))


OTHERS = {
    "dense": "the same with torch's Adam",
    "contrastive": "pytorch-metric-learning, ContrastiveLoss",
    "proxy anchor": "pytorch-metric-learning, ProxyAnchorLoss",
}
STEP, MEMORY, RESELECTION = "A training step, time", "A training step, memory", "A reselection"
BY_ROWS = "ours by rows"


def against(classes: int, per_class: int, way: str, quick: bool, most: int) -> list[Claim]:
    """Measure a step of ours and one of another way, and the memory of both."""
    case, words, is_large = case_of(classes, per_class), OTHERS[way], classes >= LARGE
    claims, ways = [], ("by rows", way)
    if SET_BACK.exists() and not quick and is_large:
        ours, theirs = (measured_alone("memory", classes, per_class, each, most) for each in ways)
        note = f"inf: it died, wanting more than {most} GB." if math.isinf(theirs) else ""
        claims.append(Claim(MEMORY, case, [(ours, theirs)], ours=BY_ROWS, theirs=words, note=note))
        if math.isinf(theirs):
            return claims
    if classes * per_class > MOST_TOGETHER:
        ours, theirs = (measured_alone("time", classes, per_class, each, most) for each in ways)
        pairs = [(ours, theirs)]
    else:
        steps = [settled(classes, per_class, each) for each in ways]
        pairs = [(a / 2, b / 2) for a, b in compare(*steps, repeats=3 if is_large else 5, calls=2)]
    return [*claims, Claim(STEP, case, pairs, ours=BY_ROWS, theirs=words)]


def reselection(classes: int, per_class: int) -> Claim:
    training = Training(classes, per_class, "by rows")
    pairs = compare(training.step, training.reselect, repeats=1 if classes >= LARGE else 3)
    case = case_of(classes, per_class)
    return Claim(RESELECTION, case, pairs, ours="a step", theirs="a reselection of all proxies")


def growth(small: int, large: int, per_class: int) -> Claim:
    steps = (settled(classes, per_class, "by rows") for classes in (small, large))
    case = f"from {small:,} to {large:,} classes x {per_class}"
    pairs = compare(*steps, repeats=5, calls=2)
    most = large / small
    return Claim("Growth of a step", case, pairs, ours="the smaller", theirs="the larger", at_most=most)


def case_of(classes: int, per_class: int) -> str:
    return f"{classes:,} classes x {per_class}"


def measure(
    quick: bool, sizes: Sequence[int] = SIZES, proxies: Sequence[int] = PROXIES, most: int = MOST_MEMORY
) -> list[Claim]:
    claims: list[Claim] = []
    sizes = sizes[: 2 if quick else None]
    for per_class in proxies:
        for classes in sizes:
            for way in OTHERS:
                if way != "proxy anchor" or per_class == 1:  # it has one proxy per class
                    claims += against(classes, per_class, way, quick, most)
            claims.append(reselection(classes, per_class))
        claims += [growth(small, large, per_class) for small, large in pairwise(sizes)]
    return claims


def show_costs(claims: Sequence[Claim]) -> None:
    """Print what the claims are ratios of: seconds of this machine's processor, and gigabytes."""
    ways = (BY_ROWS, *OTHERS.values())
    costs: dict[tuple[str, str, str], float] = {}
    for claim in claims:
        ours, theirs = (statistics.median(side) for side in zip(*claim.pairs, strict=True))
        costs[claim.title, claim.case, claim.theirs] = theirs
        costs.setdefault((claim.title, claim.case, claim.ours), ours)
    table = Table("case", "what", "a step [ms]", "memory [GB]", "a reselection [s]", title="On this machine")
    for case in dict.fromkeys(claim.case for claim in claims if claim.title == RESELECTION):
        for way in ways:
            step, memory = (costs.get((title, case, way)) for title in (STEP, MEMORY))
            chosen = costs.get((RESELECTION, case, "a reselection of all proxies")) if way == BY_ROWS else None
            shown = (step and step * 1e3, memory and memory / 2**30, chosen)
            table.add_row(case, way, *("" if value is None else f"{value:.3g}" for value in shown))
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes: under a minute")
    parser.add_argument("--classes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--proxies", type=int, nargs="*", default=PROXIES, help="of a class")
    parser.add_argument("--memory", type=int, default=MOST_MEMORY, help="GB after which a training counts as dead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    claims = measure(options.quick, options.classes, options.proxies, options.memory)
    show(claims)
    show_costs(claims)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
    else:
        main()
