"""Attack the package for real: thousands of bad inputs, a thousand kills, bit flips; print a table of how they ended.

    python tools/attack.py [--inputs 5000] [--kills 1000] [--flips 300] [--seed 0]

The columns trace, silent and hang must be 0; the exit code is 1 if they are not.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import torch
from attack.bad_inputs import KINDS, run_folder
from attack.kills import keep_records, kill_and_go_on, train_features
from attack.verdicts import Tally, judge

RECORDS, TRAINING = "kills of a run's records", "kills of ccp train"
SHARES = {
    "configuration keys": 0.5,
    "TOML recipes": 0.15,
    "CSV tables": 0.1,
    "npz features": 0.1,
    "image folders": 0.05,
    "archives": 0.1,
}


def bad_inputs(tally: Tally, folder: Path, count: int, seed: int) -> None:
    """Hand over `count` bad inputs of all kinds."""
    for kind, make in KINDS.items():
        own = folder / "inputs"
        for number in range(round(count * SHARES[kind])):
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir()
            tally.add(kind, *judge(make(random.Random(f"{seed} {kind} {number}"), own)))


def bit_flips(tally: Tally, folder: Path, count: int, seed: int) -> None:
    """Damage files of a finished run, one at a time."""
    train_features(features_in(folder), folder / "tiny")
    for number in range(count):
        tally.add(
            "damaged files of a run", *judge(run_folder(random.Random(f"{seed} {number}"), folder, folder / "tiny"))
        )


def kills(tally: Tally, folder: Path, count: int) -> None:
    """Kill what keeps a run's records at every event of runs of growing length, and then a training at its events."""
    features, length = features_in(folder), 1
    for_training = count // 10
    while count - for_training > 0 and (left := count - for_training - cases(tally, RECORDS)) > 0:
        kill_at_events(tally, RECORDS, partial(keep_records, evaluations=length), folder / f"whole{length}", left)
        length += 1
    if for_training:
        kill_at_events(tally, TRAINING, partial(train_features, features), folder / "trained", for_training)


def kill_at_events(tally: Tally, kind: str, work: Callable[[Path], None], whole: Path, most: int) -> None:
    """Kill `work` at each of its first `most` events, and compare with the undisturbed one in `whole`."""
    work(whole)
    for event in range(1, most + 1):
        out = whole.parent / "killed"
        found = kill_and_go_on(work, whole, out, event)
        shutil.rmtree(out, ignore_errors=True)
        if found is None:
            return
        tally.add(kind, *found)


def cases(tally: Tally, kind: str) -> int:
    return tally.counts[kind].total() if kind in tally.counts else 0


def features_in(folder: Path) -> Path:
    """Write the vectors that tiny runs train on."""
    file = folder / "features.npz"
    if not file.exists():
        rng = np.random.default_rng(0)
        np.savez(file, features=rng.normal(size=(48, 4)).astype("f4"), labels=np.arange(12).repeat(4))
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ccp-attack-") as scratch:
        bad_inputs(tally, Path(scratch), asked.inputs, asked.seed)
        bit_flips(tally, Path(scratch), asked.flips, asked.seed)
        kills(tally, Path(scratch), asked.kills)
    print(tally.table())
    print(f"{time.monotonic() - began:.0f} seconds")
    for failure in tally.failures:
        print(failure, file=sys.stderr)
    return 0 if tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
