"""Run every benchmark of this folder and write docs/performance.md and docs/performance.json.

    python benchmarks/run_all.py [--quick] [NAME...]

Each script runs in a process of its own, one after the other. With names (losses, retrieval, ...), only these run, and
the others' rows stay as they were measured last. See side_by_side.py for how to write a benchmark.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "performance.md"
RECORD = PAGE.with_suffix(".json")
MARK = "def measure("
INTRODUCTION = """# Performance

How many times as long another way takes on the same inputs with the same results, as a median over repeats in turns in
one process, with its quartiles. Times are those of the processor, on one thread. `make bench` measures all of it on
your machine and writes this page; the scripts are in `benchmarks/`. Absolute times are not claimed.
"""


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

    lines = [INTRODUCTION]
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
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


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
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()
        shown, _, last = output.rpartition("\n")
        print(shown, flush=True)
        record[name] = json.loads(last) | {"busy": os.getloadavg()[1]}
    if not options.quick:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        write_page(record)


if __name__ == "__main__":
    main()
