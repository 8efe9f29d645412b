"""Images per second of `model.embed` against a plain loop of timm and a DataLoader, on the same files.

Both read JPEG files, resize to 256, crop 224 and run the same architecture in batches; the other loop is what timm's
documentation shows, with a loader process per core. Wall time, in turns, since loader processes count for nobody's
processor time. The generated photos are of the size of CUB's.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from ccp_dml.config.schema import ModelConfig
from ccp_dml.data.class_folders import images_below
from ccp_dml.runs.build import build_fabric, build_network_for
from ccp_dml.serving.model import Description, EmbeddingModel
from ccp_dml.serving.preprocessing import PhotoPreprocessing

RESIZE, CROP = 256, 224


def draw_photos(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, size=(24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / f"{number:05}.jpg", quality=92)


def our_model(backbone: str, batch: int) -> EmbeddingModel:
    network = ModelConfig(backbone=backbone)
    description = Description("benchmark", network, batch, "32-true", "clip", None, None)
    embedder = build_network_for(network, None, seed=0)
    return EmbeddingModel(embedder, PhotoPreprocessing(RESIZE, CROP), description, build_fabric("cpu", "32-true"))


class Files(Dataset[Tensor]):
    def __init__(self, paths: list[Path], transform: transforms.Compose) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(Image.open(self.paths[index]).convert("RGB"))


class PlainLoop:
    """A timm network and a DataLoader, as most people write it."""

    def __init__(self, backbone: str, paths: list[Path], batch: int, workers: int) -> None:
        self.network = timm.create_model(backbone, pretrained=False, num_classes=0).eval()
        settings = self.network.pretrained_cfg
        steps = [transforms.Resize(RESIZE), transforms.CenterCrop(CROP), transforms.ToTensor()]
        transform = transforms.Compose([*steps, transforms.Normalize(settings["mean"], settings["std"])])
        self.loader = DataLoader(Files(paths, transform), batch_size=batch, num_workers=workers)

    @torch.inference_mode()
    def run(self) -> Tensor:
        return torch.cat([self.network(images) for images in self.loader])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="a folder of photos; drawn, if not given")
    parser.add_argument("--count", type=int, default=256, help="how many of them")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="loader processes of the loop"
    )
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if chosen.images is None:
            draw_photos(Path(scratch), chosen.count)
        paths = images_below(chosen.images or Path(scratch))[: chosen.count]
        model = our_model(chosen.backbone, chosen.batch)
        loop = PlainLoop(chosen.backbone, paths, chosen.batch, chosen.workers)
        seconds: tuple[list[float], list[float]] = ([], [])
        for turn in range(chosen.repeats + 1):
            for call, record in zip((lambda: model.embed(paths), loop.run), seconds, strict=True):
                started = time.perf_counter()
                vectors = call()
                assert len(vectors) == len(paths)
                if turn:  # the first turn warms up
                    record.append(time.perf_counter() - started)
    ours, theirs = seconds
    table = Table(title=f"{len(paths)} images, {chosen.backbone}, batches of {chosen.batch}, {chosen.repeats} turns")
    for title in ("ours images/s", "timm + DataLoader images/s", "ratio, median of turns", "lowest", "highest"):
        table.add_column(title, justify="right")
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    rates = [f"{len(paths) / statistics.median(record):.1f}" for record in (ours, theirs)]
    table.add_row(*rates, *(f"{value:.2f}x" for value in (statistics.median(ratios), ratios[0], ratios[-1])))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
