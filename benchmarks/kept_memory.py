"""A network's passes where the process keeps freed memory, as `ccp` does, against those where it goes back at once.

Blocks of some megabytes go back to the system when a tensor is gone, and the system clears every page of the next one.
`ccp_dml.keep_freed_memory` changes that, and no number that is computed. As it holds for a whole process, each of the
measurements has one of its own; the other way is what every program with torch on a processor does by default.
"""

import sys
import time

import torch
from side_by_side import Claim, in_own_process, main

from ccp_dml import keep_freed_memory
from ccp_dml.models.backbones import create_backbone

GOAL = 8
BACKBONE = "tf_efficientnet_lite0"
PASSES = {"training": 32, "inference": 128}  # images at once, as the recipe `finetune` and evaluations have them


def seconds_of_pass(kind: str, pixels: int, repeats: int) -> float:
    """Measure processor seconds of a pass, after one to warm up."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = create_backbone(BACKBONE).train(kind == "training")
    images = torch.randint(0, 256, (PASSES[kind], 3, pixels, pixels), dtype=torch.uint8)
    for repeat in range(repeats + 1):
        if repeat == 1:
            begun = time.process_time()
        with torch.set_grad_enabled(kind == "training"):
            features = backbone(images)
        if kind == "training":
            features.square().sum().backward()
        del features
    return (time.process_time() - begun) / repeats


def measure(quick: bool) -> list[Claim]:
    claims = []
    for kind, pixels in (("training", 112), ("training", 160), ("inference", 160)):
        if quick and pixels == 160:
            continue
        arguments = (kind, str(pixels), "1" if quick else "3")
        pairs = [
            (in_own_process(__file__, "--kept", *arguments), in_own_process(__file__, "--default", *arguments))
            for _ in range(1 if quick else 3)
        ]
        case = f"EfficientNet-Lite0, {pixels} px, {PASSES[kind]} images, {kind}"
        title = "Memory that a process keeps"
        claims.append(Claim(title, case, pairs, ours="kept", theirs="torch's default", at_least=None if quick else 1.0))
    return claims


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("--kept", "--default"):
        if sys.argv[1] == "--kept":
            keep_freed_memory()
        print(seconds_of_pass(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(__doc__, measure)
