"""What may be uploaded, and the sentence for what may not."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from ccp_dml.serving.web.uploads import MOST_BYTES, Refusal, read_picture


def encoded(image, kind="PNG", **options):
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def bomb(width, height):
    """A PNG that says it is this large, with almost no data."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_are_read(kind):
    read = read_picture(encoded(PICTURE, kind), f"image/{kind.lower()}")
    assert (read.size, read.mode) == ((20, 30), "RGB")
    if kind in ("PNG", "BMP", "TIFF"):
        assert np.array_equal(np.asarray(read), np.asarray(PICTURE))


def test_a_picture_lies_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_picture(encoded(PICTURE, "JPEG", exif=exif)).size == (30, 20)


@pytest.mark.parametrize(
    ("content", "kind", "status", "sentence"),
    [
        (b"", "image/png", 400, "The file is empty"),
        (b"just some text", "image/png", 415, "no picture that can be read; send BMP"),
        (b"just some text", "text/plain", 415, "of type text/plain, not a picture"),
        (encoded(PICTURE), "application/pdf", 415, "of type application/pdf"),
        (bomb(10_000, 10_000), "image/png", 413, r"too many pixels \(10,000 by 10,000\): at most 50 million"),
        (bomb(60_000, 60_000), "image/png", 413, "too many pixels: at most 50 million"),
        (encoded(Image.new("L", (1, 10_000))), "image/png", 413, "too thin: of its 1 by 10,000 pixels.*; crop it"),
        (encoded(PICTURE)[:-60], "image/png", 422, "The picture is damaged"),
        (b"\0" * (MOST_BYTES + 1), "image/png", 413, "too large: at most 20 MB"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "image/eps", 415, "no picture that can be read"),
    ],
    ids=["empty", "text", "text type", "pdf", "100 megapixels", "3600 megapixels", "thin", "cut", "21 MB", "EPS"],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_anything_else_is_refused_with_a_sentence(content, kind, status, sentence):
    with pytest.raises(Refusal, match=sentence) as refusal:
        read_picture(content, kind)
    assert refusal.value.status_code == status
