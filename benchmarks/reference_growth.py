"""Time and memory of the hinge losses from ten thousand to four million references, where others still run.

Memory is measured in a process of its own, as the peak of a step, with the references and their gradient, which every
way of training proxies has to hold; the peak is set back when the inputs have been made (Linux alone can do that).
pytorch-metric-learning is measured up to a million references, and up to a hundred thousand for triplets, all of which
it lists.
"""

import sys

import torch
from losses import PROXIES, check, pairs_of_losses, step, trained_scene
from side_by_side import SET_BACK, Claim, compare, in_own_process, main, peak_of, resident

GOAL = 2
SIZES = (10_000, 100_000, 1_000_000, 4_000_000)
MOST_OF_THEIRS = {"C1": 1_000_000, "C2": 1_000_000, "triplet": 100_000}


def one_peak(name: str, references: int, whose: str) -> None:
    """Take a step of the loss of `whose` ("ours" or "theirs") and print its peak, references and gradient included."""
    torch.set_num_threads(1)
    loss = pairs_of_losses()[name][whose == "theirs"]
    step(loss, trained_scene(100))()  # whatever is loaded by a first call
    before = resident("VmRSS")
    scene = trained_scene(references // PROXIES)
    print(peak_of(step(loss, scene)) - before)


def measure(quick: bool) -> list[Claim]:
    times, memory, growth = [], [], []
    for name, most_of_theirs in MOST_OF_THEIRS.items():
        own: dict[int, list[float]] = {}
        for references in SIZES[: 2 if quick else None]:
            case = f"{name}, 32 x {references:,} x 128"
            scene = trained_scene(references // PROXIES)
            ours, theirs = (step(loss, scene) for loss in pairs_of_losses()[name])
            repeats = 3 if references >= 1_000_000 else 7
            if references <= most_of_theirs:
                check(ours, theirs)
                pairs = compare(ours, theirs, repeats)
                times.append(Claim("Time, forward + backward", case, pairs))
                if SET_BACK.exists():
                    both = tuple(
                        in_own_process(__file__, "--one", name, str(references), whose) for whose in ("ours", "theirs")
                    )
                    memory.append(Claim("Peak of memory of a step", case, [both]))
            else:
                pairs = compare(ours, ours, repeats)
            own[references] = [one for one, _ in pairs]
            del scene, ours, theirs
        first, *others = own
        growth += [
            Claim(
                "Growth of time",
                f"{name}, from {first:,} to {size:,} references",
                list(zip(own[first], own[size], strict=False)),
                ours="time at the first",
                theirs="time at the second",
            )
            for size in others
        ]
    return times + memory + growth


if __name__ == "__main__":
    if "--one" in sys.argv:
        one_peak(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main(__doc__, measure)
