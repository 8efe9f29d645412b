"""Start-up: `ccp --help` against half a second, a first step against ten seconds, the demo against four minutes.

Seconds are those of the processor on one thread, in processes of their own, with imports and everything, glyphs drawn
before. The two trainings of `make demo` have a core each, so that the slower one, C2-CCP, decides; it is not trained to
its end here: what its 4,000 steps and 40 evaluations take follows from two short runs.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import Claim, main

GOAL = 9
UNTIL_FIRST_STEP = """
import os, sys
from ccp_dml.cli import main
from ccp_dml.trainer import Trainer
take_step = Trainer.take_step
def first(trainer):
    take_step(trainer)
    os._exit(0)
Trainer.take_step = first
main(sys.argv[1:])
"""
DEMO_STEPS, SHORT, LONGER = 4_000, 100, 300
WHY = (
    "Nearly all of the demo is the passes of its small network, 4,000 times 64 images; evaluations take some 5 %, "
    "start and end of a run 15 seconds."
)


def processor_seconds(*command: str) -> float:
    """Run python with `command` on one thread, and count what it and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_to_first_step(scratch: str, number: int) -> float:
    return processor_seconds("-c", UNTIL_FIRST_STEP, "train", "glyphs", "c2", "--out", str(Path(scratch, str(number))))


def seconds_of_demo(scratch: str) -> float:
    """Forecast a whole run from two short ones, which differ in nothing but steps and evaluations."""
    short, longer = (
        processor_seconds(
            *("-m", "ccp_dml", "train", "glyphs", "c2-ccp", "--set", f"train.max_steps={steps}"),
            *("--out", str(Path(scratch, f"demo-{steps}"))),
        )
        for steps in (SHORT, LONGER)
    )
    return short + (DEMO_STEPS - SHORT) * (longer - short) / (LONGER - SHORT)


def measure(quick: bool) -> list[Claim]:
    repeats = range(2 if quick else 5)
    helps = [(0.5, processor_seconds("-m", "ccp_dml", "--help")) for _ in repeats]
    claims = [Claim("Start-up", "`ccp --help`", helps, "half a second", "seconds of a processor", at_most=1.0)]
    with tempfile.TemporaryDirectory() as scratch:
        seconds_to_first_step(scratch, -1)  # draws the glyphs, if nobody has
        steps = [(10.0, seconds_to_first_step(scratch, number)) for number in repeats]
        case = "`ccp train glyphs c2` to the first step"
        claims.append(Claim("Start-up", case, steps, "ten seconds", "seconds of a processor", at_most=1.0))
        if not quick:
            demo = [(240.0, seconds_of_demo(scratch))]
            case = f"`make demo` after the installation, forecast from {SHORT} and {LONGER} steps"
            claims.append(
                Claim("The demo", case, demo, "four minutes", "seconds of a processor", at_most=1.0, note=WHY)
            )
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
