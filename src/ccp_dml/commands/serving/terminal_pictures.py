"""Small pictures in a terminal that shows colours, two pixels per character cell."""

import os
from pathlib import Path

import numpy as np
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


def terminal_picture(path: Path) -> Segments | Text:
    """Draw an image in cells: the colour of the upper half is the character's, that of the lower its background's."""
    try:
        image = decode(path)
    except Exception:  # a decoder raises whatever its format runs into
        return Text("(missing)" if is_gone(path) else "(unreadable)")
    pixels = np.asarray(image.resize((CELLS, CELLS), Image.Resampling.BOX)).tolist()
    segments = []
    for uppers, lowers in zip(pixels[::2], pixels[1::2], strict=True):
        for upper, lower in zip(uppers, lowers, strict=True):
            style = Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))
            segments.append(Segment(UPPER_HALF, style))
        segments.append(Segment.line())
    return Segments(segments)
