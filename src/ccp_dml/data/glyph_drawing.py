"""How a glyph becomes an image: a clean drawing of a character in a face, then seeded distortions."""

import math
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFont
from torch import Tensor

CANVAS = 64  # side of a clean drawing; distortions work here
SIDE = 32  # side of a finished image
LARGEST_EXTENT = 44  # of the character on its canvas
POINT_SIZE = 96  # drawn larger than needed, then shrunk: hinting at small sizes would bend the shapes

# The faces of matplotlib that draw letters of several scripts. STIX lacks Armenian, Georgian and most phonetic letters.
FACES = {
    "DejaVu Sans": "DejaVuSans.ttf",
    "DejaVu Sans Bold": "DejaVuSans-Bold.ttf",
    "DejaVu Sans Oblique": "DejaVuSans-Oblique.ttf",
    "DejaVu Sans Bold Oblique": "DejaVuSans-BoldOblique.ttf",
    "DejaVu Sans Mono": "DejaVuSansMono.ttf",
    "DejaVu Sans Mono Bold": "DejaVuSansMono-Bold.ttf",
    "DejaVu Sans Mono Oblique": "DejaVuSansMono-Oblique.ttf",
    "DejaVu Sans Mono Bold Oblique": "DejaVuSansMono-BoldOblique.ttf",
    "DejaVu Serif": "DejaVuSerif.ttf",
    "DejaVu Serif Bold": "DejaVuSerif-Bold.ttf",
    "DejaVu Serif Italic": "DejaVuSerif-Italic.ttf",
    "DejaVu Serif Bold Italic": "DejaVuSerif-BoldItalic.ttf",
    "STIX": "STIXGeneral.ttf",
    "STIX Bold": "STIXGeneralBol.ttf",
    "STIX Italic": "STIXGeneralItalic.ttf",
    "STIX Bold Italic": "STIXGeneralBolIta.ttf",
}


@cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / FACES[face]
    # The basic layout engine is always there; the other depends on what the machine has installed.
    return ImageFont.truetype(path, POINT_SIZE, layout_engine=ImageFont.Layout.BASIC)


@cache
def _missing_glyph(face: str) -> bytes:
    """What the face draws for a code point that no font has: a non-character."""
    return bytes(_font(face).getmask("\uffff", mode="L"))


def clean_drawing(character: str, face: str) -> np.ndarray | None:
    """White on black, centred, its larger extent always the same: uint8 (CANVAS, CANVAS); None if the face lacks it."""
    mask = _font(face).getmask(character, mode="L")
    if bytes(mask) == _missing_glyph(face):
        return None
    drawing = Image.frombytes("L", mask.size, bytes(mask))
    drawing = drawing.crop(drawing.getbbox())
    shrink = LARGEST_EXTENT / max(drawing.size)
    width, height = (max(1, round(extent * shrink)) for extent in drawing.size)
    canvas = Image.new("L", (CANVAS, CANVAS))
    drawing = drawing.resize((width, height), Image.Resampling.BOX)
    canvas.paste(drawing, ((CANVAS - width) // 2, (CANVAS - height) // 2))
    return np.asarray(canvas)


def distort(drawings: Tensor, generator: torch.Generator) -> Tensor:
    """Finished images: uint8 (B, 1, SIDE, SIDE) of clean drawings uint8 (B, 1, CANVAS, CANVAS)."""
    ink = drawings.float() / 255
    ink = _change_stroke(ink, generator)
    ink = _deform(ink, generator)
    ink = torch.maximum(ink, _neighbours(ink, generator))
    ink = F.avg_pool2d(ink, CANVAS // SIDE)  # (B, 1, SIDE, SIDE)
    image = _paint(ink, generator)
    image = _occlude(image, generator)
    image = _blur(image, generator)
    image = image + _between(0.0, 0.08, image, generator) * torch.randn(image.shape, generator=generator)
    return (image.clamp(0, 1) * 255).round().to(torch.uint8)


def _between(low: float, high: float, images: Tensor, generator: torch.Generator) -> Tensor:
    """One uniform number per image, (B, 1, 1, 1)."""
    return low + (high - low) * torch.rand(len(images), 1, 1, 1, generator=generator)


def _change_stroke(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Strokes thinner (up to a pixel of the canvas off each side) or thicker (up to two)."""
    change = _between(-0.6, 0.7, ink, generator)
    thinner = -_largest_nearby(-ink, 1)
    thicker = _largest_nearby(ink, 2)
    return torch.where(change < 0, ink + (thinner - ink) * -change, ink + (thicker - ink) * change)


def _largest_nearby(ink: Tensor, reach: int) -> Tensor:
    """Maximum over a square, first along and then across, which takes less time than both at once."""
    along = F.max_pool2d(ink, (1, 2 * reach + 1), stride=1, padding=(0, reach))
    return F.max_pool2d(along, (2 * reach + 1, 1), stride=1, padding=(reach, 0))


def _deform(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Rotation, shear, unequal scaling, shift, and a smooth random warp, in a single resampling."""
    count = len(ink)

    def per_image(spread: float) -> Tensor:
        return spread * (2 * torch.rand(count, generator=generator) - 1)

    angle, shear = per_image(math.radians(18)), per_image(0.25)
    across, along = per_image(0.18).exp(), per_image(0.18).exp()
    cosine, sine = angle.cos(), angle.sin()
    # Rows of the map from an output position to the input position it shows.
    row_x = torch.stack([cosine * across, (shear * cosine - sine) * across, per_image(0.12)], dim=1)
    row_y = torch.stack([sine * along, (shear * sine + cosine) * along, per_image(0.12)], dim=1)
    grid = F.affine_grid(torch.stack([row_x, row_y], dim=1), [count, 1, CANVAS, CANVAS], align_corners=False)
    knots = 0.05 * torch.randn(count, 2, 5, 5, generator=generator)
    warp = F.interpolate(knots, size=(CANVAS, CANVAS), mode="bicubic", align_corners=True)
    return F.grid_sample(ink, grid + warp.movedim(1, 3), align_corners=False)


def _neighbours(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Other glyphs of the batch that reach in from the left or the right, as in a line of text."""
    clutter = torch.zeros_like(ink)
    for direction in (-1, 1):
        others = ink[torch.randperm(len(ink), generator=generator)]
        shift = direction * _between(0.62, 0.95, ink, generator).flatten() * 2
        shown = torch.rand(len(ink), generator=generator) < 0.6
        place = torch.zeros(len(ink), 2, 3)
        place[:, 0, 0] = place[:, 1, 1] = 1
        place[:, 0, 2] = shift
        place[:, 1, 2] = 0.3 * (2 * torch.rand(len(ink), generator=generator) - 1)
        moved = F.grid_sample(others, F.affine_grid(place, list(ink.shape), align_corners=False), align_corners=False)
        clutter = torch.where(shown[:, None, None, None], torch.maximum(clutter, moved), clutter)
    return clutter


def _paint(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Ink and paper in two greys at least 0.35 apart, either of them darker, on cloudy paper."""
    contrast = _between(0.35, 0.9, ink, generator)
    darker = torch.rand(ink.shape[0], 1, 1, 1, generator=generator) * (1 - contrast)
    inverted = torch.rand(ink.shape[0], 1, 1, 1, generator=generator) < 0.5
    ink_grey = torch.where(inverted, darker, darker + contrast)
    paper_grey = torch.where(inverted, darker + contrast, darker)
    knots = 0.07 * torch.randn(len(ink), 1, 4, 4, generator=generator)
    clouds = F.interpolate(knots, size=(SIDE, SIDE), mode="bicubic", align_corners=True)
    return paper_grey + (ink_grey - paper_grey) * ink + clouds


def _occlude(image: Tensor, generator: torch.Generator) -> Tensor:
    """In every second image a rectangle of one grey hides a part."""
    pixel = torch.arange(SIDE)
    inside = torch.rand(len(image), 1, 1, 1, generator=generator) < 0.5
    for axis in (2, 3):
        start = _between(0, SIDE, image, generator) - 4
        extent = _between(4, 12, image, generator)
        offset = pixel.view(1, 1, -1, 1) if axis == 2 else pixel.view(1, 1, 1, -1)
        inside = inside & (offset >= start) & (offset < start + extent)
    return torch.where(inside, torch.rand(len(image), 1, 1, 1, generator=generator), image)


def _blur(image: Tensor, generator: torch.Generator) -> Tensor:
    """From sharp to out of focus."""
    binomial = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    kernel = (binomial[:, None] * binomial).view(1, 1, 5, 5)
    blurred = F.conv2d(F.pad(image, (2, 2, 2, 2), mode="replicate"), kernel)
    return image + (blurred - image) * _between(0.0, 1.0, image, generator)
