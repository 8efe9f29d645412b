"""Run every benchmark of this folder and write docs/performance.md and docs/performance.json.

    python benchmarks/run_all.py [--quick] [NAME...]

Each script runs in a process of its own, one after the other. With names (losses, retrieval, ...), only these run, and
the others' rows stay as they were measured last. See side_by_side.py for how to write a benchmark.
"""

import argparse
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from side_by_side import Claim

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "performance.md"
RECORD = PAGE.with_suffix(".json")
MARK = "\ndef measure("
GROWTH = "reference_growth"
INTRODUCTION = """# Performance

How many times as long another way takes on the same inputs with the same results, as a median over repeats in turns in
one process, with its quartiles. Times are those of the processor, on one thread. `make bench` measures all of it on
your machine, in about three quarters of an hour, and writes this page; the scripts are in `benchmarks/`. Absolute times
are not claimed.

**Does fast code change results?** Every fast path computes the same formula, in another order: scores of evaluations
are the same to all digits, values and gradients of losses to the last few. A training amplifies last digits, as it does
those of another number of threads. [Lab notes](lab_notes.md#the-same-seed-with-faster-code) compare.
"""
FIGURE = PAGE.parent / "assets" / "performance-growth.svg"


def names() -> list[str]:
    return sorted(
        path.stem for path in FOLDER.glob("*.py") if MARK in path.read_text("utf-8") and path != Path(__file__)
    )


def run_one(name: str, quick: bool) -> None:
    """Measure in this process, show the tables, and leave the claims as JSON on the last line."""
    import torch
    from side_by_side import show

    torch.set_num_threads(1)
    module = importlib.import_module(name)
    claims = module.measure(quick)
    show(claims)
    ratios_alone = [asdict(claim) | {"pairs": [(1.0, ratio) for ratio in claim.ratios]} for claim in claims]
    print(json.dumps({"about": module.__doc__, "claims": ratios_alone}))


def write_page(record: dict[str, dict]) -> None:
    from side_by_side import ROW, Claim, tables

    lines = [INTRODUCTION, *summary(record)]
    for name, found in sorted(record.items()):
        first, *rest = found["about"].strip().split("\n\n")
        lines += [f"## {name}\n", " ".join(first.split()) + f" (`benchmarks/{name}.py`)\n"]
        lines += [" ".join(paragraph.split()) + "\n" for paragraph in rest if not paragraph.startswith("    ")]
        if found["busy"] > 1.5 * (os.cpu_count() or 1):
            lines.append(f"Measured while other work kept the machine busy (load {found['busy']:.1f}).\n")
        for title, rows in tables([Claim(**claim) for claim in found["claims"]]).items():
            lines += [f"**{title}**\n", "| " + " | ".join(ROW) + " |", "|---|--:|--:|--:|---|"]
            lines += ["| " + " | ".join(claim.cells()) + " |" for claim in rows] + [""]
            lines += [f"{note}\n" for note in dict.fromkeys(claim.note for claim in rows if claim.note)]
        if name == GROWTH:
            draw_growth([Claim(**claim) for claim in found["claims"]])
            lines.append(f"![Time of a step against the number of references]({FIGURE.parent.name}/{FIGURE.name})\n")
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def summary(record: dict[str, dict]) -> list[str]:
    """List what was wanted, by goal, and whether it was reached."""
    from side_by_side import ROW, Claim

    lines = ["## What was wanted\n", "| goal | " + " | ".join(ROW) + " |", "|--:|---|--:|--:|--:|---|"]
    by_goal = sorted(record, key=lambda name: goal_of(name) or 99)
    for name in by_goal:
        claims = [Claim(**claim) for claim in record[name]["claims"]]
        wanted = [claim for claim in claims if claim.reached is not None]
        if not wanted and goal_of(name):  # a goal without a number: what its first table found
            wanted = [claim for claim in claims if claim.title == claims[0].title]
        for claim in wanted:
            case, *cells = claim.cells()
            what = f"{claim.title} ({claim.theirs} / {claim.ours}): {case}"
            lines.append(f"| {goal_of(name) or ''} | " + " | ".join([what, *cells]) + " |")
    return [*lines, ""]


def goal_of(name: str) -> int | None:
    """Read the number of the goal in a benchmark's script; None if it stands for no goal."""
    path = FOLDER / f"{name}.py"
    found = re.search(r"^GOAL = (\d+)$", path.read_text("utf-8"), re.MULTILINE) if path.exists() else None
    return None if found is None else int(found[1])


def draw_growth(claims: Sequence["Claim"]) -> None:
    """Draw how the time of a step grows with the references, in multiples of our time at the fewest."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"  # the same numbers give the same file
    from matplotlib import pyplot

    growth = re.compile(r"(.+), from [\d,]+ to ([\d,]+) references")
    size_of_case = re.compile(r"(.+), 32 x ([\d,]+) x 128")
    ours: dict[str, dict[int, float]] = {}
    theirs: dict[str, dict[int, float]] = {}
    for claim in claims:
        if found := growth.fullmatch(claim.case):
            ours.setdefault(found[1], {10_000: 1.0})[int(found[2].replace(",", ""))] = claim.ratio
    for claim in claims:
        if claim.title.startswith("Time") and (found := size_of_case.fullmatch(claim.case)):
            references = int(found[2].replace(",", ""))
            theirs.setdefault(found[1], {})[references] = claim.ratio * ours[found[1]].get(references, 1.0)
    figure, panels = pyplot.subplots(1, len(ours), figsize=(9, 3), sharex=True, sharey=True, layout="constrained")
    for panel, name in zip(panels, ours, strict=True):
        panel.loglog(theirs[name].keys(), theirs[name].values(), "o-", color="#b35900", label="pytorch-metric-learning")
        panel.loglog(ours[name].keys(), ours[name].values(), "o-", color="#00588f", label="ours")
        panel.set(title=name, xlabel="references")
    panels[0].set_ylabel("time of a step, ours at 10,000 = 1")
    panels[0].legend()
    figure.savefig(FIGURE, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*names(), []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="smaller inputs; nothing is written")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_one(options.names[0], options.quick)
        return
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    for name in options.names or names():
        command = [sys.executable, str(FOLDER / "run_all.py"), name, "--here", *["--quick"] * options.quick]
        started = time.monotonic()
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()
        shown, _, last = output.rpartition("\n")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = (
            f"{name}: {time.monotonic() - started:.0f} s, of processors so far {used.ru_utime + used.ru_stime:.0f} s"
        )
        print(f"{shown}\n{taken}", flush=True)
        record[name] = json.loads(last) | {"busy": os.getloadavg()[1]}
        if not options.quick:  # at once: who stops here keeps what was measured
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            write_page(record)


if __name__ == "__main__":
    main()
