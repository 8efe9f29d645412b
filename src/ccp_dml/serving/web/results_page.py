"""The results of one search as a page that needs nothing but itself."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader
from PIL import Image

from ccp_dml.data.files.images import decode
from ccp_dml.foundation.files import as_utf8, write_text
from ccp_dml.serving.search.gallery import Hit

SIDE = 200


def write_results_page(file: Path, query: Path, hits: Sequence[Hit], name: str, promise: str | None) -> None:
    """Write the query and its neighbours with their pictures, distances, labels and attributes."""
    environment = Environment(loader=PackageLoader("ccp_dml.serving.web", "page"), autoescape=True)
    page = environment.get_template("results.html").render(
        query=query.name,
        picture=picture_address(query),
        hits=[(hit, picture_address(Path(hit.item.path))) for hit in hits],
        name=name,
        promise=promise,
    )
    write_text(file, as_utf8(page))


def picture_address(path: Path) -> str | None:
    """Make a small copy of an image as a data: address; None if it is missing or broken."""
    try:
        return "data:image/webp;base64," + base64.b64encode(small_copy(path, SIDE)).decode("ascii")
    except Exception:  # a decoder raises whatever its format runs into
        return None


def small_copy(path: Path, side: int) -> bytes:
    """Write an image as WebP of at most `side` pixels each way, without what else the file says about it."""
    image = decode(path)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    image.save(written, "WEBP", quality=85)
    return written.getvalue()
