"""What the certificate takes of a run on features, from reading the file to the report.

The features are drawn at random, as many and as wide as EfficientNet-Lite0's of CUB-200-2011 (200 classes of 58
images, 1,280 numbers each). The run is `ccp train features c2-ccp` with all its defaults, with evaluations, maps and
report.
"""

import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
from side_by_side import Claim, main

from ccp_dml.config.layers import resolve
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs import conclusion, training
from ccp_dml.runs.arguments import complete
from ccp_dml.runs.watcher import Watcher

GOAL = 6
WHY = (
    "The run has become fast, too, and half a second is left of the certificate: two thirds of it are products and "
    "counts in float64 of up to eight million pairs of a set."
)
CLASSES, IMAGES, WIDTH = 200, 58, 1280


def draw_features(path: Path, classes: int) -> None:
    """Write features of classes that overlap as those of photographs do: a linear head finds about half of a class."""
    source = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), IMAGES)
    scales = np.linspace(1.0, 0.05, WIDTH)
    centres = source.normal(size=(classes, WIDTH)) * scales
    features = centres[labels] + 2.5 * source.normal(size=(len(labels), WIDTH)) * scales
    np.savez(path, features=features.astype(np.float32), labels=labels)


def seconds_of_run(path: Path, settings: list[str]) -> tuple[float, float]:
    """Train a run in a new folder: processor seconds of all of it, and of its certificate."""
    config = complete(resolve(["features", "c2-ccp"], [f"data.path={path}", *settings]).config)
    certificate_seconds = 0.0
    write_certificate = conclusion.write_certificate

    def timed(*arguments: object) -> object:
        nonlocal certificate_seconds
        begun = time.process_time()
        certificate = write_certificate(*arguments)  # type: ignore[arg-type]
        certificate_seconds = time.process_time() - begun
        assert certificate is not None
        return certificate

    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(conclusion, "write_certificate", timed):
        started = time.process_time()
        training.train(config, Logbook.open_new(Path(scratch, "run"), config, ["benchmark"]), Watcher())
        return time.process_time() - started, certificate_seconds


def measure(quick: bool) -> list[Claim]:
    classes, settings, repeats = (40, ["train.max_steps=100"], 1) if quick else (CLASSES, [], 2)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "features.npz")
        draw_features(path, classes)
        pairs = [seconds_of_run(path, settings) for _ in range(repeats)]
    case = f"{classes * IMAGES:,} features of {classes} classes, C2-CCP"
    return [
        Claim(
            "The certificate's share of a run",
            case,
            pairs,
            ours="the whole run",
            theirs="the certificate",
            at_most=None if quick else 0.03,
            note=WHY,
        )
    ]


if __name__ == "__main__":
    main(__doc__, measure)
