"""Time and memory of the hinge losses from ten thousand to four million references, where others still run.

Each size runs in a process of its own, so that its peak of memory is its own. The peak is counted above the references
and their gradient, which every way of training proxies has to hold. pytorch-metric-learning is measured up to a million
references (MS and triplet list more pairs than memory holds long before).
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch
from losses import PROXIES, check, pairs_of_losses, step, trained_scene
from side_by_side import Claim, compare, main

SIZES = (10_000, 100_000, 1_000_000, 4_000_000)
MOST_OF_THEIRS = 1_000_000
LOSSES = ("C1", "C2", "triplet")
TRIPLETS_OF_THEIRS = 100_000


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_size(name: str, references: int, whose: str) -> None:
    """Take steps of one loss of `whose` ("ours" or "theirs"), and print the peak of memory above what must be there."""
    torch.set_num_threads(1)
    scene = trained_scene(references // PROXIES)
    loss = pairs_of_losses()[name][whose == "theirs"]
    embeddings, labels, some, ref_labels = (tensor[:8] for tensor in scene)
    step(loss, (embeddings.detach().requires_grad_(), labels, some.detach().requires_grad_(), ref_labels))
    scene[2].grad = torch.zeros_like(scene[2])
    before = peak()
    run = step(loss, scene)
    run()
    print(json.dumps(max(peak() - before, 1 << 20)))


def peak_of(name: str, references: int, whose: str) -> float:
    command = [sys.executable, str(Path(__file__)), "--one", name, str(references), whose]
    return float(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def measure(quick: bool) -> list[Claim]:
    times, memory, growth = [], [], []
    for name in LOSSES:
        own: dict[int, float] = {}
        for references in SIZES[: 2 if quick else None]:
            case = f"{name}, 32 x {references:,} x 128"
            scene = trained_scene(references // PROXIES)
            ours, theirs = (step(loss, scene) for loss in pairs_of_losses()[name])
            repeats = 3 if references >= 1_000_000 else 7
            if references <= (TRIPLETS_OF_THEIRS if name == "triplet" else MOST_OF_THEIRS):
                check(ours, theirs)
                pairs = compare(ours, theirs, repeats)
                times.append(Claim("Time, forward + backward", case, pairs))
                both = (peak_of(name, references, "ours"), peak_of(name, references, "theirs"))
                memory.append(Claim("Peak of memory beside references and gradient", case, [both]))
            else:
                pairs = compare(ours, ours, repeats)
            own[references] = min(one for one, _ in pairs)
            del scene, ours, theirs
        first, *others = own
        growth += [
            Claim(
                "Growth of time",
                f"{name}, from {first:,} to {size:,} references",
                [(own[first], own[size])],
                ours="time at the first",
                theirs="time at the second",
            )
            for size in others
        ]
    return times + memory + growth


if __name__ == "__main__":
    if "--one" in sys.argv:
        one_size(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main(__doc__, measure)
