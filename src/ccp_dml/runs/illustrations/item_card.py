"""An item of a data set as the page shows it: its class, its name and a small embedded picture."""

import base64
import io
from typing import Any

from PIL import Image

from ccp_dml.data.labelled import LabelledSet

THUMBNAIL = 96  # pixels on the longer side


def item_card(items: LabelledSet, row: int) -> dict[str, Any]:
    """What there is to say about the item at `row`, as JSON; without a picture where there is nothing to see."""
    position = int(items.positions[row])
    picture = items.source.picture(position)
    return {
        "row": row,
        "class": items.class_names[int(items.labels[row])],
        "name": items.source.name(position),
        "picture": None if picture is None else thumbnail(picture),
    }


def thumbnail(picture: Image.Image) -> str:
    """A data URI of the picture, at most THUMBNAIL pixels wide and high."""
    small = picture.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    encoded = io.BytesIO()
    small.save(encoded, format="WEBP", quality=80, method=6)
    return "data:image/webp;base64," + base64.b64encode(encoded.getvalue()).decode("ascii")
