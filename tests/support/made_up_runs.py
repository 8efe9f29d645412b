"""Made-up run folders as training would leave them, and a real browser to look at their reports."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from PIL import Image, ImageDraw

from ccp_dml.data.labelled import LabelledSet, TestSet
from ccp_dml.records.problem_map import MapPoints, ProblemMap, write_problem
from ccp_dml.runs.conclusion import build_map_pictures
from ccp_dml.runs.illustrations.confusion import build_confusion
from ccp_dml.runs.illustrations.gallery import build_gallery


@cache
def noise_picture() -> Image.Image:
    return Image.effect_noise((96, 96), 100)


class DrawnItems:
    """A source of coloured squares with the item's number; without pictures it stands for precomputed features."""

    in_memory = True

    def __init__(self, count: int, has_pictures: bool = True, is_noise: bool = False) -> None:
        self.count, self.has_pictures, self.is_noise = count, has_pictures, is_noise
        self.looked_at: list[int] = []

    def __len__(self) -> int:
        return self.count

    def load(self, positions: torch.Tensor, seeds: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG002
        raise AssertionError("a gallery needs no network inputs")

    def name(self, position: int) -> str:
        return f"item {position}"

    def picture(self, position: int) -> Image.Image | None:
        if not self.has_pictures:
            return None
        self.looked_at.append(position)
        if self.is_noise:
            return noise_picture()
        image = Image.new("RGB", (160, 120), (position * 37 % 256, position * 91 % 256, position * 151 % 256))
        ImageDraw.Draw(image).text((10, 10), str(position), fill="white")
        return image


def items(
    labels: torch.Tensor, has_pictures: bool = True, names: tuple[str, ...] = (), is_noise: bool = False
) -> LabelledSet:
    """One item per label, at positions that differ from the rows."""
    source = DrawnItems(len(labels) + 100, has_pictures, is_noise)
    class_names = tuple(f"class {label}" for label in range(int(labels.max()) + 1))
    return LabelledSet(source, torch.arange(len(labels)) + 100, labels, names + class_names[len(names) :])


@cache  # encoding a hundred pictures takes longer than most tests
def made_up_gallery(quality: float, **changes: Any) -> dict[str, Any]:
    """A gallery of 10 classes with 6 images each whose embeddings are the better the higher `quality`."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(10).repeat_interleave(6)
    centres = torch.randn(10, 8, generator=generator)
    embeddings = quality * centres[labels] + torch.randn(60, 8, generator=generator)
    return build_gallery(TestSet(items(labels, **changes)), embeddings)


def made_up_metrics(is_ccp: bool, evaluations: int = 40) -> list[dict[str, Any]]:
    rows = []
    for index in range(evaluations):
        progress = 1 - 0.93 ** (index + 1)
        ceiling = 0.45 if is_ccp else 0.34
        problem = 1 + index // 8 if is_ccp else 1
        map_at_r = ceiling * progress + 0.004 * (index % 3)
        row = {
            "step": 50 * (index + 1),
            "problem": problem,
            "map_at_r": map_at_r,
            "precision_at_1": min(1.0, map_at_r + 0.35),
            "r_precision": map_at_r + 0.09,
            "loss": 0.6 * (1 - progress) + 0.08,
            "gradient_norm": 1.5 + 0.2 * (index % 4),
            "active_positives": 1 - 0.5 * progress,
            "active_negatives": 0.2 * (1 - progress),
            "seconds": 4.2 * (index + 1),
            "evaluation_seconds": 0.8 * (index + 1),
            "reselection_seconds": 0.2 * (problem - 1),
        }
        if is_ccp:
            row |= {
                "covering_radius": 0.9 * 0.85**problem,
                "proxy_spread": 0.8 - 0.05 * (index % 8),
                "staleness": 0.04 * (1 + index % 8),
                "embedding_drift": 0.06 * (1 + index % 8),
                "proxy_drift": 0.02 * (1 + index % 8),
                "pull_norm": 0.0 if problem == 1 else 1e-3 * (1 + index % 8),
            }
        rows.append(row)
    return rows


def write_run(folder: Path, is_ccp: bool = True, finished: bool = True, gallery: dict[str, Any] | None = None) -> Path:
    """A run's folder as the contract describes it."""
    folder.mkdir(parents=True)
    metrics = made_up_metrics(is_ccp)
    config = {
        "data": {"name": "glyphs", "resize": 256},
        "model": {"backbone": "small_cnn", "embedding_dim": 64, "normalise": "clip"},
        "loss": {"name": "c2", "positive_margin": 0.0, "negative_margin": 0.5},
        "train": {"max_steps": 2000, "evaluate_every": 50},
        "optim": {"lr": 1e-3, "betas": [0.9, 0.999]},
        "ccp": {"mode": "alternating" if is_ccp else "off", "weight": 2e-4, "proxies_per_class": 8},
        "xbm": {"enabled": False},
        "protocol": {"folds": 4, "fold": 0},
        "run": {"seed": 7, "device": "auto"},
    }
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    (folder / "environment.json").write_text(
        json.dumps({"python": "3.11.7", "torch": "2.15.0", "command": f"ccp train glyphs c2 --out {folder.name}"})
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    if gallery is not None:
        (folder / "gallery.json").write_text(json.dumps(gallery))
    if finished:
        best = max(metrics, key=lambda row: row["map_at_r"])
        scores = {key: best[key] for key in ("map_at_r", "precision_at_1", "r_precision")}
        result = {
            "test": {key: value - 0.02 for key, value in scores.items()}
            | {"queries": 4800, "recall_at": {"1": 0.75, "2": 0.8}},
            "validation": scores | {"queries": 1200},
            "best_step": best["step"],
            "steps": metrics[-1]["step"],
            "problems": metrics[-1]["problem"],
            "seed": 7,
        }
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def write_maps(
    folder: Path, problems: int = 3, dim: int = 8, per_class: int = 6, proxies: int = 2, **changes: Any
) -> list[ProblemMap]:
    """Maps of 4 training and 3 validation classes as a run leaves them, and their pictures; `proxies` 0: a baseline."""
    generator = torch.Generator().manual_seed(3)
    labels = {"train": torch.arange(4).repeat(per_class), "validation": torch.arange(3).repeat(per_class)}
    data = {side: items(of, **changes) for side, of in labels.items()}
    centres = torch.randn(4, dim, generator=generator)
    made = []
    for problem in range(1, problems + 1):
        sides = {
            side: MapPoints(
                problem * centres[of] + torch.randn(len(of), dim, generator=generator),
                of,
                torch.arange(len(of)),
                data[side].class_names,
            )
            for side, of in labels.items()
        }
        selected, converged = problem * centres[:, None] + torch.randn(2, 4, proxies, dim, generator=generator)
        placed = {"selected": selected, "converged": converged} if proxies else {"selected": None, "converged": None}
        made.append(ProblemMap(problem, **sides, **placed))
        write_problem(folder, made[-1])
    pictures = build_map_pictures(folder, data["train"], data["validation"])
    (folder / "map.json").write_text(json.dumps(pictures))
    return made


def write_confusion(folder: Path, noise: float = 1.5, **changes: Any) -> None:
    labels = torch.arange(10).repeat_interleave(6)
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(10, 8, generator=generator)[labels] + noise * torch.randn(60, 8, generator=generator)
    (folder / "confusion.json").write_text(json.dumps(build_confusion(TestSet(items(labels, **changes)), embeddings)))


@pytest.fixture(name="items")
def items_factory() -> Callable[..., LabelledSet]:
    return items


@pytest.fixture(name="made_up_gallery")
def gallery_factory() -> Callable[..., dict[str, Any]]:
    return made_up_gallery


@pytest.fixture(name="write_run")
def run_factory() -> Callable[..., Path]:
    return write_run


@pytest.fixture(name="write_maps")
def maps_factory() -> Callable[..., list[ProblemMap]]:
    return write_maps


@pytest.fixture(name="write_confusion")
def confusion_factory() -> Callable[..., None]:
    return write_confusion


@pytest.fixture
def illustrated_runs(two_runs: list[Path]) -> list[Path]:
    """The two runs with everything that a report can show."""
    write_maps(two_runs[0], problems=1, proxies=0)
    write_maps(two_runs[1])
    for run in two_runs:
        write_confusion(run)
    return two_runs


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    """A baseline and a CCP run on the same data with the same seed, as older versions left them: without maps."""
    return [
        write_run(tmp_path / "runs" / "c2", is_ccp=False, gallery=made_up_gallery(0.5)),
        write_run(tmp_path / "runs" / "c2-ccp", is_ccp=True, gallery=made_up_gallery(1.5)),
    ]
