"""Make small pictures for pages: thumbnails, and sheets of hundreds of pictures in one file."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageOps

from ccp_dml.data.labelled import LabelledSet

SIDES = (64, 48, 32)  # pixels of a picture, the largest that fits the budget; whole blocks of the encoder
BUDGET = 400_000  # bytes of a sheet
BACKGROUND = (128, 128, 128)


def contact_sheet(pictures: Sequence[Image.Image | None]) -> dict[str, Any] | None:
    """Put pictures row by row into a square grid: `uri`, `columns`, `rows` and `side` (in pixels); None without any.

    A picture keeps its aspect on grey; one that is missing leaves its place empty. Sheets that would exceed BUDGET are
    made of smaller pictures; the smallest are used whatever the sheet's size.
    """
    if all(picture is None for picture in pictures):
        return None
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    for side in SIDES:
        encoded = _encoded(pictures, columns, rows, side)
        if len(encoded) <= BUDGET:
            break
    uri = "data:image/webp;base64," + base64.b64encode(encoded).decode("ascii")
    return {"uri": uri, "columns": columns, "rows": rows, "side": side}


def _encoded(pictures: Sequence[Image.Image | None], columns: int, rows: int, side: int) -> bytes:
    sheet = Image.new("RGB", (columns * side, rows * side), BACKGROUND)
    for place, picture in enumerate(pictures):
        if picture is not None:
            small = ImageOps.pad(picture.convert("RGB"), (side, side), color=BACKGROUND)
            sheet.paste(small, (place % columns * side, place // columns * side))
    encoded = io.BytesIO()
    sheet.save(encoded, format="WEBP", quality=70, method=4)
    return encoded.getvalue()


THUMBNAIL = 96  # pixels on the longer side


def item_card(items: LabelledSet, row: int) -> dict[str, Any]:
    """Describe the item at `row` as JSON, with a picture where there is one."""
    position = int(items.positions[row])
    picture = items.source.picture(position)
    return {
        "row": row,
        "class": items.class_names[int(items.labels[row])],
        "name": items.source.name(position),
        "picture": None if picture is None else thumbnail(picture),
    }


def thumbnail(picture: Image.Image) -> str:
    """Shrink a picture to at most THUMBNAIL pixels wide and high, as a data URI."""
    small = picture.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    encoded = io.BytesIO()
    small.save(encoded, format="WEBP", quality=80, method=6)
    return "data:image/webp;base64," + base64.b64encode(encoded.getvalue()).decode("ascii")
