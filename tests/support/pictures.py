"""Small noisy pictures of one colour, a folder per colour."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 60, 50), "green": (60, 180, 70), "blue": (50, 80, 210), "<b>bold": (230, 210, 60)}


def write_picture(path: Path, colour, seed: int, side: int = 24) -> Path:
    """A noisy picture of one colour."""
    noise = np.random.default_rng(seed).normal(scale=45, size=(4, 4, 3))
    pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST).save(path)
    return path


def write_pictures(folder: Path, per_class: int = 6) -> Path:
    for number, (name, colour) in enumerate(COLOURS.items()):
        for image in range(per_class):
            write_picture(folder / name / f"{image}.png", colour, 100 * number + image)
    return folder
