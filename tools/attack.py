"""Attack the package for real: bad inputs, damaged files, kills, full disks, signals, clocks; print how each ended.

    python tools/attack.py [--inputs 5000] [--kills 1000] [--seed 0] [--folder DIR] [--only WORDS]

The columns trace, silent and hang must be 0; the exit code is 1 if they are not. Each kind of attack is counted in a
file of `--folder`: a command that was stopped goes on there, and commands with other `--only` share the
work, which keeps to the kinds whose names hold one of the WORDS, separated by commas.
"""

import argparse
import gc
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from attack import bad_inputs, kills
from attack.bad_serving import Serving
from attack.verdicts import Tally, judge
from attack.works import Ground

Verdict = tuple[str, str] | None

INPUTS = {
    "configuration keys": 0.30,
    "TOML recipes": 0.12,
    "CSV tables": 0.10,
    "npz features": 0.10,
    "image folders": 0.06,
    "archives": 0.08,
    "damaged files of a run": 0.06,
    "damaged indexes": 0.05,
    "conditions of a search": 0.03,
    "damaged exports": 0.02,
    "command lines": 0.02,
    "requests to the server": 0.06,
}
WORKS = {
    "records of a run": 0.30,
    "feature cache": 0.26,
    "ccp data prepare": 0.26,
    "ccp index": 0.10,
    "ccp train": 0.04,
    "ccp benchmark --workers 2": 0.02,
    "ccp study": 0.01,
    "ccp export": 0.01,
}
AT_EVENTS, WITHIN = "kill at an event", "kill within a write"
SHARE_AT_EVENTS = 0.6
TITLES = {
    "full disk at an event": "full disks",
    "full disk within a write": "full disks",
    "signal": "SIGINT, SIGTERM, SIGHUP",
    "clock jumps": "jumps of the clock",
}
OTHERS = tuple(TITLES)
SHARE_OF_OTHERS = 0.06
"""How many of each other disturbance there are, as a share of the kills of the same work."""

PATIENCE = 8
"""So many disturbances in a row that come to nothing: the work has no more events."""

SMALL_RUN = "run of vectors"


class Attacks:
    """Makes the attacks of every kind, each as a stream of verdicts that is the same for the same seed."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground, self.seed = ground, seed
        self._serving: Serving | None = None

    def inputs(self, kind: str, first: int) -> Iterator[Verdict]:
        """Hand over bad inputs of one kind without end, from the `first` on."""
        make, own = self._maker(kind), self.ground.folder / "inputs"
        for number in itertools.count(first):
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir()
            yield judge(make(random.Random(f"{self.seed} {kind} {number}"), own))

    def _maker(self, kind: str) -> Callable[[random.Random, Path], bad_inputs.Attack]:
        if kind in bad_inputs.KINDS:
            return bad_inputs.KINDS[kind]
        if kind == "damaged files of a run":
            run = self.ground.folder / SMALL_RUN
            if not run.exists():
                assert self.ground.train(run) == 0
            return lambda draw, folder: bad_inputs.run_folder(draw, folder, run)
        if self._serving is None:
            self._serving = Serving(self.ground)
        return self._serving.kinds()[kind]

    def disturbances(self, name: str, kind: str, first: int) -> Iterator[Verdict]:
        """Disturb one work in one way without end, from the `first` disturbance on."""
        if name in ("ccp index", "ccp export"):
            _ = self.ground.photo_run  # or the first child would train it, and be disturbed
        _ = self.ground.features, self.ground.archive
        work = self.ground.work(name)
        whole = kills.whole_of(work, self.ground.folder)
        found = kills.series(whole, random.Random(f"{self.seed} {name} {kind}"))[kind]
        for how in itertools.islice(found, first, None):
            yield kills.disturb(work, how, whole)


class Counts:
    """What was counted of one kind of attack, in a file: a command that was stopped goes on behind it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind, self.file = kind, folder / f"{kind.replace(' ', '-')}.json"
        self.tally, self.tried = Tally(), 0
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            self.tried = kept["tried"]
            self.tally.extend(kind, kept["counts"], kept["failures"])

    @property
    def cases(self) -> int:
        return self.tally.counts[self.kind].total() if self.kind in self.tally.counts else 0

    def take(self, stream: Iterator[Verdict], wanted: int) -> None:
        """Take verdicts until `wanted` are counted, or no more come."""
        nothing = 0
        while self.cases < wanted and nothing < PATIENCE:
            verdict = next(stream)
            self.tried, nothing = self.tried + 1, 0 if verdict is not None else nothing + 1
            if verdict is not None:
                self.tally.add(self.kind, *verdict)
            if self.tried % 10 == 0:
                self.save()
        self.save()

    def save(self) -> None:
        counts = self.tally.counts.get(self.kind, {})
        self.file.write_text(json.dumps({"tried": self.tried, "counts": counts, "failures": self.tally.failures}))


def plan(inputs: int, kill_count: int) -> list[tuple[str, str | None, int]]:
    """List all kinds of attacks: the input or the work, the kind of disturbance, and how many.

    A work has only so many events: kills within writes make up for those that are missing.
    """
    planned: list[tuple[str, str | None, int]] = [(kind, None, round(inputs * part)) for kind, part in INPUTS.items()]
    for name, part in WORKS.items():
        planned += [(name, AT_EVENTS, round(kill_count * part * SHARE_AT_EVENTS)), (name, WITHIN, kill_count * part)]
        planned += [(name, kind, max(2, round(kill_count * part * SHARE_OF_OTHERS))) for kind in OTHERS]
    return planned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep counts here; default: a folder that is removed at the end")
    parser.add_argument("--only", default="", help="kinds whose names hold one of these words, separated by commas")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    words, began = [word for word in asked.only.split(",") if word], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ccp-attack-") as scratch:
        folder = asked.folder or Path(scratch) / "counts"
        folder.mkdir(parents=True, exist_ok=True)
        attacks = Attacks(Ground(Path(scratch) / "ground"), asked.seed)
        gc.freeze()  # or every fork would copy what the collector touches
        for name, how, wanted in plan(asked.inputs, asked.kills):
            kind = name if how is None else f"{name}: {how}"
            if words and not any(word in kind for word in words):
                continue
            counts = Counts(folder, kind)
            if how == WITHIN:
                wanted -= Counts(folder, f"{name}: {AT_EVENTS}").cases
            first = counts.tried
            counts.take(
                attacks.inputs(name, first) if how is None else attacks.disturbances(name, how, first), round(wanted)
            )
            print(f"{kind}: {counts.cases} after {time.monotonic() - began:.0f} s", flush=True)
        tally = whole_tally(folder, asked.inputs, asked.kills)
    print(tally.table())
    for failure in tally.failures:
        print(failure, file=sys.stderr)
    return 0 if tally.is_clean else 1


def whole_tally(folder: Path, inputs: int, kill_count: int) -> Tally:
    """Put together what was counted: inputs by kind, kills by work, other disturbances by kind."""
    tally = Tally()
    for name, how, _ in plan(inputs, kill_count):
        counts = Counts(folder, name if how is None else f"{name}: {how}")
        title = name if how is None else TITLES.get(how, f"{name}: kills")
        for found in counts.tally.counts.values():
            tally.extend(title, found, counts.tally.failures)
    return tally


if __name__ == "__main__":
    sys.exit(main())
