"""`model.embed` against a plain loop of timm and a DataLoader, on the same JPEG files with the same architecture.

Both resize to 256, crop 224 and embed batches of 16; the other loop is what timm's documentation shows. It loads in its
own process here, as loader processes count for nobody's processor time. Photos are drawn: of the size of CUB's, and of
twelve megapixels as phones take them. Where vectors are not the same bit for bit, every photo must still find itself
among the exact ones.
"""

import tempfile
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from side_by_side import Claim, compare, main
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from ccp_dml.config.schema import ModelConfig
from ccp_dml.data.files.class_folders import images_below
from ccp_dml.runs.build import build_network_for
from ccp_dml.runs.devices import build_fabric
from ccp_dml.serving.model import Description, EmbeddingModel
from ccp_dml.serving.preprocessing import PhotoPreprocessing

BACKBONE, BATCH = "resnet18", 16
SIZES = {"500 x 375": (500, 375), "4000 x 3000": (4000, 3000)}
TITLE, PEER = "Embedding photos", "timm + DataLoader"
RESIZE, CROP = 256, 224


def draw_photos(folder: Path, count: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, size=(24, 32, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(folder / f"{number:05}.jpg", quality=92)


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


def finds_itself(found: np.ndarray, expected: np.ndarray) -> bool:
    """Tell whether every vector of `found` (N, D) is nearest to its own of `expected` (N, D)."""
    distances = np.linalg.norm(found[:, None] - expected[None], axis=2)
    return bool((distances.argmin(axis=1) == np.arange(len(found))).all())


def hurried(**options: bool) -> EmbeddingModel:
    model = our_model(BACKBONE, BATCH)
    model.hurry(**options)
    return model


def measure(quick: bool) -> list[Claim]:
    repeats = 3 if quick else 5
    claims = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, size in SIZES.items():
            folder = Path(scratch) / name
            folder.mkdir()
            draw_photos(folder, 8 if size[0] > 1000 else 16 if quick else 48, size)
            paths = images_below(folder)
            exact = our_model(BACKBONE, BATCH)
            loop = PlainLoop(BACKBONE, paths, BATCH, workers=0)
            expected = exact.embed(paths)
            ways = {"": exact, ", channels_last": hurried(channels_last=True)}
            if size[0] > 1000:
                ways = {"": exact, ", reduced_decoding": hurried(reduced_decoding=True)}
            for how, model in ways.items():
                assert finds_itself(model.embed(paths), expected)
                case = f"{BACKBONE}, {len(paths)} photos of {name}{how}"
                times = compare(lambda model=model, paths=paths: model.embed(paths), loop.run, repeats)  # type: ignore[misc]
                claims.append(Claim(TITLE, case, times, theirs=PEER, at_least=None if quick else 1.0))
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
