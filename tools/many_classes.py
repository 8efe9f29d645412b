"""Train with very many classes, kill a second such training, go on with it, and compare the two bit for bit.

    python tools/many_classes.py --classes 1000000

It makes up features of so many classes, trains `ccp train features c2-ccp-s` on them with the settings for many classes
(docs/scale.md) through three problems, and says what memory and processor time that took. Then it trains the same
again, kills it (SIGKILL) after its second checkpoint, resumes it, and compares both runs' last checkpoints: weights,
proxies, Adam's moments, copies, random states. It ends with exit code 1 if a single bit differs. Linux, and about 9 GB
of disk for a million classes.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from ccp_dml.foundation.checkpoint import load_checkpoint
from ccp_dml.records import layout
from ccp_dml.records.logbook import Logbook

FEATURES, IMAGES, TEST_CLASSES, VALIDATION_CLASSES = 32, 2, 200, 500
SETTINGS = (
    "loss.positive_margin=0.2858",
    "loss.negative_margin=0.5130",  # those of SOP: a batch feels few of so many proxies
    "optim.proxies_by_rows=true",
    "optim.decay_proxies=false",
    "optim.lr=0.001",
    "run.proxies_on_disk=true",
    "run.device=cpu",
    "ccp.pool_per_class=2",
    "ccp.start_step=0",
    "ccp.until=steps",
    "ccp.steps_per_problem=15",
    "train.max_steps=40",
    "train.evaluate_every=10",
)
TIMED = ("seconds", "log_digest")  # how names end of what may differ: clocks, and the log that has their times


def write_features(path: Path, classes: int) -> None:
    """Make up vectors that scatter about their class's centre."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes + VALIDATION_CLASSES + TEST_CLASSES), IMAGES)
    features = draw.standard_normal((len(labels) // IMAGES, FEATURES), np.float32).repeat(IMAGES, 0)
    features += 0.3 * draw.standard_normal(features.shape, np.float32)
    tested = labels >= classes + VALIDATION_CLASSES
    np.savez(path, features=features, labels=labels, split=np.where(tested, "test", "train"))


def command_of(features: Path, folder: Path, classes: int, *more: str) -> list[str]:
    folds = (classes + VALIDATION_CLASSES) // VALIDATION_CLASSES  # one of which validates
    settings = (f"data.path={features}", f"protocol.folds={folds}", *SETTINGS)
    given = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "ccp_dml", "train", "features", "c2-ccp-s"]
    return [*command, *given, "--out", str(folder), *more]


def train(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; measure its processor seconds, and the peak of the largest process so far in bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss * 1024


def kill_after_checkpoints(command: list[str], folder: Path, count: int = 2) -> int:
    """Start a training, and kill it as soon as it has written so many checkpoints; return the last one's step."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        seen: set[int] = set()
        while len(seen) < count:
            if training.poll() is not None:
                raise RuntimeError("the training ended before it could be killed")
            if (folder / layout.CHECKPOINT).exists():
                seen.add(os.stat(folder / layout.CHECKPOINT).st_ino)  # each is a new file, put in the place of the old
            time.sleep(0.005)
        training.kill()
    step: int = load_checkpoint(folder / layout.CHECKPOINT, mapped=True)["trainer"]["step"]
    return step


def entries_of(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """List everything in nested dictionaries and lists, with its name."""
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from entries_of(inner, f"{name}/{key}")
    elif not name.endswith(TIMED):
        yield name, value


def differences(one: Path, other: Path) -> tuple[list[str], int]:
    """List what is not equal in the last checkpoints and the logs of two runs; count the numbers compared."""
    found, compared = [], 0
    states = [dict(entries_of(load_checkpoint(run / layout.CHECKPOINT, mapped=True))) for run in (one, other)]
    found += sorted(states[0].keys() ^ states[1].keys())
    for name in states[0].keys() & states[1].keys():
        a, b = (state[name] for state in states)
        if isinstance(a, torch.Tensor):
            compared += a.numel()
            found += [] if a.dtype == b.dtype and torch.equal(a, b) else [name]
        elif a != b:
            found.append(name)
    logs = [
        [
            {key: value for key, value in row.items() if not key.endswith("seconds")}
            for row in Logbook.reopen(run).rows()
        ]
        for run in (one, other)
    ]
    return found + (["metrics.jsonl"] if logs[0] != logs[1] else []), compared


def kill_and_compare(root: Path, classes: int) -> bool:
    """Train whole and killed in folders of `root`; say what was seen; tell whether both ended alike."""
    features, whole, killed = root / "many.npz", root / "whole", root / "killed"
    write_features(features, classes)
    seconds, peak = train(command_of(features, whole, classes))
    rows = Logbook.reopen(whole).rows()
    print(f"{classes:,} classes: {rows[-1]['step']} steps, {rows[-1]['problem']} problems, validation MAP@R", end=" ")
    print(f"{rows[0]['map_at_r']:.3f} -> {rows[-1]['map_at_r']:.3f}; {seconds:.0f} s of processor time", end=", ")
    print(f"{peak / 2**30:.1f} GB at its peak, files of proxies that lie in memory included.", flush=True)
    step = kill_after_checkpoints(command_of(features, killed, classes), killed)
    train(command_of(features, killed, classes, "--resume"))
    found, compared = differences(whole, killed)
    print(f"Killed after step {step} and resumed: {compared:,} numbers compared,", end=" ")
    print(f"different: {', '.join(found[:9])}" if found else "all equal to the last bit.", flush=True)
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where to work; without it, a folder that is removed at the end")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        sys.exit(0 if kill_and_compare(options.folder or Path(name), options.classes) else 1)


if __name__ == "__main__":
    main()
