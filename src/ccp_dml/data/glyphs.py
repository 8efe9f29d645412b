"""The embedded data set: 400 characters of five scripts, drawn in the faces that matplotlib ships, each time distorted.

A class is a character that at least twelve faces draw. Characters that look alike once their size is normalised are one
drawing under several names (Latin A, Greek Alpha, Cyrillic А; o and O), so only the first of them is a class: no two
classes have a mean cosine of 0.93 or more between their clean, slightly blurred drawings in the same face. 200 classes
are for training, 200 for the test.

How hard it is: see docs/glyphs.md, measured by `python benchmarks/glyphs_difficulty.py`.
"""

import hashlib
import inspect
import json
import unicodedata
import warnings
import zipfile
from pathlib import Path

import matplotlib
import numpy as np
import PIL
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ccp_dml.data import glyph_drawing
from ccp_dml.data.glyph_drawing import FACES, SIDE, clean_drawing, distort
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.foundation import randomness
from ccp_dml.foundation.digests import digest, tensor_digest
from ccp_dml.foundation.files import atomic, cache_home

CHARACTERS = (
    "0123456789"
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefgijkmnpqrtuvy"
    "ΓΔΞΣΦΨΩαβγδεζηικλμνξπςστυφχωϗϘϙϚϞϟϠϡϷϸϺϻϼϽ"
    "ЂЉЊЋЏДЖЛУЦЧШЩЪЫЬЮЯвгдзилмтфцшщъыьэюђєљњћѢѣѪѳѴҐґҔҖҘҚҢңҤҥҫҬҭұҲҺӃӇӋӔӕӘӠӶӷ"
    "აბგდეზთიკლმნოჟრსტუფქღყჩცძწჭჯჰჱჲჳჴჵჶჸჹჺ"
    "ԱԲԳԴԵԶԷԸԹԺԻԽԾԿՀՁՂՃՄՅՆՇՈՉՊՌՎՐՒՔՖդեզէըթլխծկհձճմյնչպջռվֆ"
    "ØßðøđħŁłŊŒƁƃƅƇƈƊƋƎƑƒƓƔƕƖƛƜƝƢƣƤƦƧƪƫƭƱƲƳƴƶƸƺƼƾƿǂǶȜȡȤȴȵȶȸȹȺȻȾȿɀɁɄɍɐɑɒɕɗɘɚɝɞɟɠɡɤɧɬɭɮɱɲɳɷɸɹɺɻɼɾɿ"
    "ʁʂʃʅʆʇʉʌʍʎʐʑʓʔʕʖʗʘʚʛʝʞʠʣʤʥʦʧʨʩʪʫʬʭʮʯᴉᴔᴖᴗᴝᴞᴟᵻᶅⱤⱮⱵⱷꞐꞑꞪ"
)
# Dealt like cards to eight hands, so that each script is in each hand. Four hands train, and each of these is a fold of
# the protocol (which folds contiguous classes); four are for the test.
CLASSES = tuple("".join(CHARACTERS[hand::8] for hand in range(8)))
IMAGES_PER_CLASS = 24
SEED = 2024  # of the distortions: part of what the data set is, not of a run
BATCH = 400  # images distorted together; their neighbours come from the same batch


def load_glyphs(images_per_class: int = IMAGES_PER_CLASS, cache: Path | None = None) -> DataHalves:
    """Load both halves, drawn at the first call and read from `cache` afterwards (default: the user's)."""
    folder = cache_home() if cache is None else cache
    images, faces = _read_or_draw(images_per_class, folder)
    source = GlyphSource(images, faces, images_per_class)
    labels = torch.arange(len(CLASSES)).repeat_interleave(images_per_class)
    names = tuple(readable_name(character) for character in CLASSES)
    everything = LabelledSet(source, torch.arange(len(source)), labels, names)
    half = len(CLASSES) // 2
    train, test = everything.of_classes(range(half)), everything.of_classes(range(half, len(CLASSES)))
    return DataHalves(train, TestSet(test))


def readable_name(character: str) -> str:
    """Name a character for a person: `Greek small letter xi ξ`."""
    return f"{unicodedata.name(character).capitalize()} {character}"


class GlyphSource:
    """Grey images in memory. The three channels that networks expect are one, seen three times."""

    in_memory = True

    def __init__(self, images: Tensor, faces: Tensor, images_per_class: int) -> None:
        self.images = images  # (N, 1, SIDE, SIDE) uint8
        self.faces = faces  # (N,) which of FACES drew it
        self.images_per_class = images_per_class

    def __len__(self) -> int:
        return len(self.images)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        images = self.images[positions]
        if seeds is not None:
            images = augment(images, seeds)
        return images.expand(-1, 3, -1, -1)

    def name(self, position: int) -> str:
        character = CLASSES[position // self.images_per_class]
        return (
            f"{readable_name(character)}, {list(FACES)[self.faces[position]]}, image {position % self.images_per_class}"
        )

    def picture(self, position: int) -> Image.Image:
        return Image.fromarray(self.images[position, 0].numpy())

    def signature(self, positions: Tensor) -> str:
        return digest(inspect.getsource(augment), tensor_digest([("images", self.images[positions])]))


def augment(images: Tensor, seeds: Tensor) -> Tensor:
    """Small turns, shears, stretches and shifts, and in every second image light for dark: uint8 (B, 1, H, W)."""
    generator = torch.Generator()
    drawn = torch.stack([torch.rand(7, generator=generator.manual_seed(seed)) for seed in seeds.tolist()])  # (B, 7)
    spread = torch.tensor([[0.15, 0.2, 0.12], [0.2, 0.15, 0.12]])
    place = torch.eye(2, 3) + spread * (2 * drawn[:, :6].view(-1, 2, 3) - 1)
    grid = F.affine_grid(place, list(images.shape), align_corners=False)
    # Reflection keeps the paper's grey and texture at the border.
    moved = F.grid_sample(images.float(), grid, padding_mode="reflection", align_corners=False)
    inverted = drawn[:, 6].view(-1, 1, 1, 1) < 0.5
    return torch.where(inverted, 255 - moved, moved).round().to(torch.uint8)


def draw(images_per_class: int) -> tuple[Tensor, Tensor]:
    """Draw images (N, 1, SIDE, SIDE) uint8, class after class, with the face of each (N,). Always the same."""
    drawings, faces = [], []
    for character in CLASSES:
        drawn = [(number, clean_drawing(character, face)) for number, face in enumerate(FACES)]
        clean = [(number, drawing) for number, drawing in drawn if drawing is not None]
        for image in range(images_per_class):
            face, drawing = clean[image % len(clean)]
            drawings.append(drawing)
            faces.append(face)
    generator = randomness.generator(SEED, "glyphs")
    # Shuffled, so that the neighbours which clutter an image are of any class.
    order = torch.randperm(len(drawings), generator=generator)
    images = torch.empty(len(drawings), 1, SIDE, SIDE, dtype=torch.uint8)
    stacked = torch.from_numpy(np.stack(drawings))[:, None]
    for batch in order.split(BATCH):
        images[batch] = distort(stacked[batch], generator)
    return images, torch.tensor(faces)


def _fingerprint(images_per_class: int) -> str:
    """Digest everything that could change a pixel."""
    recipe = {
        "drawing": inspect.getsource(glyph_drawing),
        "classes": "".join(CLASSES),
        "images_per_class": images_per_class,
        "seed": SEED,
        "batch": BATCH,
        "versions": [matplotlib.__version__, PIL.__version__, torch.__version__],
    }
    return hashlib.blake2b(json.dumps(recipe).encode(), digest_size=8).hexdigest()


def _read_or_draw(images_per_class: int, folder: Path) -> tuple[Tensor, Tensor]:
    file = folder / f"glyphs-{_fingerprint(images_per_class)}.npz"
    try:
        with np.load(file) as stored:
            return torch.from_numpy(stored["images"]), torch.from_numpy(stored["faces"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(f"drawing the glyphs again, because {file} cannot be read: {error}", stacklevel=3)
    images, faces = draw(images_per_class)
    try:
        with atomic(file) as part, part.open("wb") as content:
            np.savez(content, images=images.numpy(), faces=faces.numpy())
    except OSError as error:
        warnings.warn(
            f"the glyphs will be drawn again next time, because {file} cannot be written: {error}", stacklevel=3
        )
    return images, faces
