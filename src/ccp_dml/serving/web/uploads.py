"""Pictures that strangers send: read only if small enough, of a known format, and whole."""

import io
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from PIL import Image, ImageOps, UnidentifiedImageError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ccp_dml.data.files.images import FORMATS, TooThin, as_rgb
from ccp_dml.foundation.files import from_json

MEGABYTE = 1 << 20
MOST_BYTES = 20 * MEGABYTE
MOST_BYTES_DROPPED = 10 * MOST_BYTES
MOST_PIXELS = 50_000_000
MOST_FILES = 32
MOST_FIELDS = 32
DIGITS_OF_A_LENGTH = 18

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refusal(HTTPException):
    """A request that cannot be answered: a 4xx status and a sentence."""


@dataclass(frozen=True)
class Sent:
    """What a request carries: pictures by field, and the other fields."""

    pictures: list[tuple[str, bytes, str]]  # field, content, content type
    fields: dict[str, Any]


class BodyLimit:
    """Refuses larger requests before they are read to the end, whatever their header says."""

    def __init__(self, app: Any, most_bytes: int) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and (len(length) > DIGITS_OF_A_LENGTH or int(length) > self.most_bytes):
            return await self._refuse(scope, receive, send)
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > self.most_bytes:
                raise Refusal(413, self._sentence())
            return message

        return await self.app(scope, counted, send)

    async def _refuse(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        left = MOST_BYTES_DROPPED  # a client that is cut off while it sends never reads the answer
        while left > 0 and (message := await receive()).get("more_body", False):
            left -= len(message.get("body", b""))
        answer = JSONResponse({"detail": self._sentence()}, 413, headers={"connection": "close"})
        await answer(scope, receive, send)

    def _sentence(self) -> str:
        return f"The request is too large: at most {self.most_bytes // MEGABYTE} MB are read."


async def read_sent(request: Request) -> Sent:
    """Take a request apart: a form with pictures and fields, one picture as the whole body, or fields as JSON.

    Fields may also stand in the address: `/search?k=5`.
    """
    fields: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in ("multipart/form-data", "application/x-www-form-urlencoded"):
        pictures = []
        async with request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    pictures.append((name, await value.read(), value.content_type or ""))
                elif name.isprintable():
                    fields[name] = value
                else:  # `curl --data-binary @FILE` calls any file a form
                    raise Refusal(415, "The body is called a form, and is none; with curl, write -F image=@FILE.")
        return Sent(pictures, fields)
    if kind == "application/json":
        try:
            given = from_json(await request.body())
        except ValueError:
            raise Refusal(400, "The body is not valid JSON.") from None
        if not isinstance(given, dict):
            raise Refusal(400, 'The JSON must be an object with fields, such as {"id": 12}.')
        return Sent([], fields | given)
    if kind.startswith("image/") or kind == "application/octet-stream":
        return Sent([("image", await request.body(), kind)], fields)
    if not kind and not await request.body():
        return Sent([], fields)
    raise Refusal(
        415, f"The content type {kind or '(none)'} is not read; send a form with a picture in the field 'image'."
    )


def read_picture(content: bytes, content_type: str = "") -> Image.Image:
    """Decode an upload as an upright RGB image; a Refusal says what is wrong with it."""
    kind = content_type.split(";")[0].strip().lower()
    if kind and not kind.startswith("image/") and kind != "application/octet-stream":
        raise Refusal(415, f"The file is of type {kind}, not a picture; send {_formats()}.")
    if not content:
        raise Refusal(400, "The file is empty; send a picture.")
    if len(content) > MOST_BYTES:
        raise Refusal(413, f"The file is too large: at most {MOST_BYTES // MEGABYTE} MB are read.")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise _too_many_pixels(image.width, image.height)
            return as_rgb(ImageOps.exif_transpose(image))
    except Image.DecompressionBombError:
        raise _too_many_pixels() from None
    except UnidentifiedImageError:
        raise Refusal(415, f"The file is no picture that can be read; send {_formats()}.") from None
    except TooThin as error:
        raise Refusal(413, f"The picture is too thin: {error}.") from None
    except Refusal:
        raise
    except Exception as error:  # a decoder raises whatever its format runs into
        raise Refusal(422, f"The picture is damaged ({error or type(error).__name__}); send it again.") from None


def _too_many_pixels(width: int | None = None, height: int | None = None) -> Refusal:
    size = "" if width is None else f" ({width:,} by {height:,})"
    return Refusal(413, f"The picture has too many pixels{size}: at most {MOST_PIXELS // 1_000_000} million are read.")


def _formats() -> str:
    return ", ".join(FORMATS[:-1]) + f" or {FORMATS[-1]}"
