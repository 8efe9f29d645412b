"""Small pictures in a terminal that shows colours, two pixels per character cell."""

import os
from pathlib import Path

from PIL import Image
from rich.color import Color
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from ccp_dml.data.files.images import decode
from ccp_dml.serving.search.gallery import is_gone

CELLS = 8  # wide; a cell is twice as high as it is wide, so that this gives 8 x 8 pixels
UPPER_HALF = "▀"


def can_show_pictures(console: Console) -> bool:
    """Tell whether the terminal has the 16 million colours that a picture needs, and nobody asked for none."""
    return console.is_terminal and console.color_system == "truecolor" and "NO_COLOR" not in os.environ


def terminal_picture(path: Path, cells: int = CELLS) -> Segments | Text:
    """Draw an image in cells: the colour of the upper half is the character's, that of the lower its background's."""
    try:
        image = decode(path)
    except Exception:  # a decoder raises whatever its format runs into
        return Text("(missing)" if is_gone(path) else "(unreadable)")
    small = image.resize((cells, cells), Image.Resampling.BOX)
    segments = []
    for row in range(0, cells, 2):
        for column in range(cells):
            upper, lower = (small.getpixel((column, row + half)) for half in (0, 1))
            assert isinstance(upper, tuple)
            assert isinstance(lower, tuple)
            segments.append(Segment(UPPER_HALF, Style(color=_colour(upper), bgcolor=_colour(lower))))
        segments.append(Segment.line())
    return Segments(segments)


def _colour(rgb: tuple[int, ...]) -> Color:
    return Color.from_rgb(*rgb[:3])
