"""The server of a model or an index: a JSON interface and a search page, for this machine unless asked otherwise."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ccp_dml.errors import UserError
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search.gallery import Gallery, refuse_other_model
from ccp_dml.serving.web.service import SameFields, SearchFields, Service, sentence_of
from ccp_dml.serving.web.uploads import MEGABYTE, MOST_BYTES, BodyLimit, Refusal, Sent, read_sent

REQUESTS_AT_ONCE = 2
"""How many requests with pictures are worked on at a time: decoding one of 50 million pixels takes over a gigabyte."""
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

    @app.middleware("http")
    async def check_host_and_add_headers(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        host = re.sub(r":\d*$", "", request.headers.get("host", "").lower())
        if allowed_hosts is None or host in allowed_hosts:
            response = await call_next(request)
        else:
            sentence = (
                f"This server answers to {' and '.join(allowed_hosts)} only, not to {host}; --host lets others call."
            )
            response = JSONResponse({"detail": sentence}, 400)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(UserError)
    async def explain(_: Request, error: UserError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    async def explain_fields(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": sentence_of(error.errors()[0])}, 422)

    @app.exception_handler(HTTPException)
    async def explain_address(request: Request, error: HTTPException) -> JSONResponse:
        detail, address = error.detail, request.url.path
        if (error.status_code, detail) == (404, "Not Found"):
            detail = f"There is nothing at {address}; /docs describes what there is."
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            detail = f"{address} is called with {allowed}, not with {request.method}; /docs describes how."
        return JSONResponse({"detail": detail}, error.status_code, error.headers)

    _add_interface(app, service)
    _add_page(app, service)
    return app


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
        return service.health()

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
        if not service.has_gallery:
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
