"""The server of a model or an index: a JSON interface and a search page, for this machine unless asked otherwise."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ccp_dml.errors import UserError
from ccp_dml.reports.certificate_words import set_names
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search.gallery import Gallery, Hit, Item, refuse_other_model
from ccp_dml.serving.web.index_overview import Overview
from ccp_dml.serving.web.results_page import small_copy
from ccp_dml.serving.web.uploads import MEGABYTE, MOST_BYTES, BodyLimit, Refusal, Sent, read_picture, read_sent

SIDES = {"small": 160, "large": 900}
PICTURES_KEPT = 4096
REQUESTS_AT_ONCE = 2
"""Of those with pictures, each of which takes more than a gigabyte while one of 50 million pixels is decoded."""
PAGE_FILES = {
    "search.css": "text/css",
    "search.js": "text/javascript",
    "map.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PICTURE = {"type": "string", "format": "binary"}

Fields = TypeVar("Fields", bound=BaseModel)


class SearchFields(BaseModel):
    """What a search asks for, besides the picture."""

    model_config = ConfigDict(extra="ignore")

    id: int | None = Field(None, description="Search with this indexed image instead of a picture.")
    k: int = Field(20, ge=1, le=500, description="How many results.")
    where: str | None = Field(None, max_length=2000, description='A condition, such as species = "wren".')
    within: float | None = Field(None, gt=0, le=1, description="Only what is the same at this false-match rate.")


class SameFields(BaseModel):
    model_config = ConfigDict(extra="ignore")

    false_match_rate: float | None = Field(None, gt=0, le=1, description="None: the one that was certified.")


def make_app(
    model: EmbeddingModel, gallery: Gallery | None, allowed_hosts: list[str] | None = None, with_tsne: bool = True
) -> FastAPI:
    """Make the server of a model, and of the gallery that was embedded with it.

    `allowed_hosts` are the names by which the server may be called, so that no foreign page can reach it through a name
    of its own; None: any.
    """
    if gallery is not None:
        refuse_other_model(gallery.model, model.digest, model.name, gallery.name)
    service = Service(model, gallery, with_tsne)
    # FastAPI's own documentation page would fetch its scripts from elsewhere.
    app = FastAPI(title="ccp-dml", summary="Embed, search and compare images.", docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, most_bytes=MOST_BYTES + MEGABYTE)
    if allowed_hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts)

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(UserError)
    async def explain(_: Request, error: UserError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    async def explain_fields(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": _sentence(error.errors()[0])}, 422)

    _add_interface(app, service)
    _add_page(app, service)
    return app


class Service:
    """What the server does, without the web around it."""

    def __init__(self, model: EmbeddingModel, gallery: Gallery | None, with_tsne: bool) -> None:
        self.model = model
        self._gallery = gallery
        self._overview = None if gallery is None else Overview(gallery, with_tsne)
        self.picture = lru_cache(PICTURES_KEPT)(_encoded)

    @property
    def gallery(self) -> Gallery:
        if self._gallery is None:
            raise Refusal(409, "This server has a model but no index; start it with `ccp serve INDEX` to search.")
        return self._gallery

    @property
    def overview(self) -> Overview:
        _ = self.gallery
        assert self._overview is not None
        return self._overview

    def embed(self, image: Image.Image) -> np.ndarray:
        """Compute the vector (1, D) of one picture, as the index has them."""
        return self.model.comparable(self.model.embed([image], batch_size=1))

    def vectors(self, sent: Sent) -> dict[str, Any]:
        if not sent.pictures:
            raise Refusal(400, "Send at least one picture, in the field 'image'.")
        vectors = [self.embed(read_picture(content, kind))[0].tolist() for _, content, kind in sent.pictures]
        return {"vectors": vectors, "dim": self.model.dim, "model": self.model.digest}

    def search(self, sent: Sent) -> dict[str, Any]:
        gallery = self.gallery
        fields = _checked(SearchFields, sent.fields)
        answer: dict[str, Any] = {}
        threshold = None if fields.within is None else self.model.match_threshold(fields.within)
        if fields.id is not None:
            item = self.item(fields.id)
            vectors = gallery.vectors_of([fields.id])
            answer["query"] = {"id": item.id, "path": short_path(item.path), "label": item.label}
        elif sent.pictures:
            _, content, kind = sent.pictures[0]
            vectors = self.embed(read_picture(content, kind))
        else:
            raise Refusal(400, "Send a picture in the field 'image', or the id of an indexed image in the field 'id'.")
        (hits,) = gallery.search(vectors, fields.k, fields.where, [] if fields.id is None else [fields.id])
        if threshold is not None:
            hits = [hit for hit in hits if hit.distance <= threshold.beta]
            answer |= {"threshold": threshold.beta, "promise": threshold.promise}
        return answer | {"results": [_result(hit) for hit in hits]}

    def same(self, sent: Sent) -> dict[str, Any]:
        if len(sent.pictures) != 2:
            raise Refusal(400, f"Send two pictures, in the fields 'a' and 'b'; {len(sent.pictures)} came.")
        fields = _checked(SameFields, sent.fields)
        threshold = self.model.match_threshold(fields.false_match_rate)
        one, two = (self.embed(read_picture(content, kind)) for _, content, kind in sent.pictures)
        distance = float(np.linalg.norm(one.astype(np.float64) - two.astype(np.float64)))
        return {
            "same": distance <= threshold.beta,
            "distance": distance,
            "threshold": threshold.beta,
            "promise": threshold.promise,
        }

    def facts(self) -> dict[str, Any]:
        """Collect what the page shows before anybody searches."""
        gallery = self.gallery
        return {
            "name": gallery.name,
            "count": gallery.count,
            "model": self.model.name,
            "labels": gallery.label_counts(),
            "attributes": gallery.attribute_values(),
            "thresholds": self.thresholds(),
            "warning": gallery.warning,
        }

    def thresholds(self) -> list[dict[str, Any]]:
        """List the distances for all false-match rates of the certificate, ascending; none without a certificate."""
        certificate = self.model.certificate
        if certificate is None or certificate["threshold"] is None:
            return []
        rates = {point["wanted"] for point in certificate["sets"]["validation"]["trade_off"]}
        certified = certificate["threshold"]["wanted"]
        rates = {rate for rate in rates if rate < 0.999} | {certified}
        found = [(rate, self.model.match_threshold(rate)) for rate in sorted(rates)]
        return [
            {
                "rate": rate,
                "distance": one.beta,
                "promise": one.promise,
                "certified": rate == certified,
                "measured_on": set_names(certificate)["validation"],
            }
            for rate, one in found
        ]

    def item(self, number: int) -> Item:
        try:
            if not 0 < number < 1 << 63:  # what an id can be
                raise KeyError(number)
            (item,) = self.gallery.items([number])
        except KeyError:
            raise Refusal(404, f"The index has no image with the id {number}.") from None
        return item

    def image(self, number: int, size: str) -> bytes:
        side = SIDES.get(size)
        if side is None:
            raise Refusal(404, f"There is no size {size!r}; ask for {' or '.join(SIDES)}.")
        path = Path(self.item(number).path)
        try:
            return self.picture(path, path.stat().st_mtime_ns, side)
        except Exception:  # missing, or whatever a decoder runs into
            raise Refusal(404, f"The file of image {number} is missing or cannot be read.") from None


def _add_interface(app: FastAPI, service: Service) -> None:
    turn = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def in_turn(work: Callable[[Sent], dict[str, Any]], sent: Sent) -> dict[str, Any]:
        """Do the work in a thread; what needs no picture decoded waits for nobody."""
        if not sent.pictures:
            return await run_in_threadpool(work, sent)
        async with turn:
            return await run_in_threadpool(work, sent)

    def with_pictures(fields: type[BaseModel] | None, *names: str, many: bool = False) -> dict[str, Any]:
        """Describe a form with these pictures and fields."""
        own = {} if fields is None else fields.model_json_schema()["properties"]
        pictures = {name: {"type": "array", "items": PICTURE} if many else PICTURE for name in names}
        schema = {"type": "object", "properties": pictures | own}
        return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}

    @app.get("/health", summary="Say that the server is up, and what it serves.")
    def health() -> dict[str, Any]:
        gallery = service._gallery
        model = service.model
        return {
            "status": "ok",
            "model": {"name": model.name, "digest": model.digest, "dim": model.dim},
            "index": None
            if gallery is None
            else {"name": gallery.name, "images": gallery.count, "warning": gallery.warning},
        }

    @app.post("/embed", summary="Embed pictures.", openapi_extra=with_pictures(None, "image", many=True))
    async def embed(request: Request) -> dict[str, Any]:
        """Compute the vectors of one or more pictures, in the order in which they were sent."""
        return await in_turn(service.vectors, await read_sent(request))

    @app.post("/search", summary="Find the nearest indexed images.", openapi_extra=with_pictures(SearchFields, "image"))
    async def search(request: Request) -> dict[str, Any]:
        """Find the images nearest to a picture, or to an indexed image, nearest first."""
        return await in_turn(service.search, await read_sent(request))

    @app.post(
        "/same", summary="Say whether two pictures show the same.", openapi_extra=with_pictures(SameFields, "a", "b")
    )
    async def same(request: Request) -> dict[str, Any]:
        """Say whether two pictures are of the same class, by the certificate's threshold, and what that promises."""
        return await in_turn(service.same, await read_sent(request))

    @app.get("/images/{number}", summary="Show an indexed image.", response_class=Response)
    def image(number: int, size: str = "small") -> Response:
        """Send a small copy of an indexed image, as WebP; images are named by their id only."""
        return Response(
            service.image(number, size), media_type="image/webp", headers={"Cache-Control": "private, max-age=600"}
        )

    @app.get("/index", summary="Describe the index.")
    def index() -> dict[str, Any]:
        """Send classes, attributes, and the distance for each false-match rate."""
        return service.facts()

    @app.get("/index/map", summary="Place the indexed images on a plane.")
    def index_map() -> dict[str, Any]:
        return service.overview.map().as_dict()

    @app.get("/index/confusions", summary="List the classes that are confused most.")
    def confusions() -> dict[str, Any]:
        return service.overview.confusions()


def _add_page(app: FastAPI, service: Service) -> None:
    page = files("ccp_dml.serving.web") / "page"
    environment = Environment(loader=PackageLoader("ccp_dml.serving.web", "page"), autoescape=True)

    @app.get("/", include_in_schema=False)
    def search_page() -> HTMLResponse:
        if service._gallery is None:
            return HTMLResponse(environment.get_template("model.html").render(model=service.model))
        return HTMLResponse((page / "search.html").read_text(encoding="utf-8"))

    @app.get("/page/{name}", include_in_schema=False)
    def page_file(name: str) -> Response:
        if name not in PAGE_FILES:
            raise Refusal(404, "There is no such file.")
        return Response((page / name).read_text(encoding="utf-8"), media_type=PAGE_FILES[name])

    @app.get("/docs", include_in_schema=False)
    def documentation(request: Request) -> HTMLResponse:
        address = str(request.base_url).rstrip("/")
        template = environment.get_template("interface.html")
        return HTMLResponse(template.render(document=app.openapi(), address=address))


def short_path(path: str) -> str:
    """Shorten a path to a file's name with its folder's: enough to recognise it, without telling where it is stored."""
    return "/".join(Path(path).parts[-2:])


def _result(hit: Hit) -> dict[str, Any]:
    item = hit.item
    return {
        "id": item.id,
        "path": short_path(item.path),
        "label": item.label,
        "distance": hit.distance,
        "attributes": item.attributes,
        "image": f"/images/{item.id}",
    }


def _encoded(path: Path, mtime_ns: int, side: int) -> bytes:  # noqa: ARG001 - a changed file is another picture
    return small_copy(path, side)


def _checked(kind: type[Fields], given: Mapping[str, Any]) -> Fields:
    """Check the fields of a form; empty ones count as left out, as forms send them."""
    try:
        return kind.model_validate({name: value for name, value in given.items() if value != ""})
    except ValidationError as error:
        raise Refusal(422, _sentence(error.errors()[0])) from None


def _sentence(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"] if part not in ("path", "query", "body"))
    return f"{where or 'The request'}: {error['msg'][0].lower() + error['msg'][1:]}."
