"""`ccp serve`."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccp_dml.commands.console import Device, ModelOption, MovedFiles, TrustCode, out, warn
from ccp_dml.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SECONDS_TO_FINISH = 5
"""What is being answered when the server is stopped gets so long to end."""


def serve(
    what: Annotated[
        str, typer.Argument(metavar="MODEL|INDEX", help="A model, an index, or the address an index was pushed to.")
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Who may call: 127.0.0.1 is this machine alone, 0.0.0.0 anybody.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port to listen on; 0 takes a free one.")
    ] = 8000,
    map_kind: Annotated[
        str, typer.Option("--map", metavar="tsne|pca", help="How the page's map of all images is drawn.")
    ] = "tsne",
    model: ModelOption = None,
    device: Device = "auto",
    settings: MovedFiles = None,
    trust_code: TrustCode = False,
) -> None:
    """Answer queries of programs, and show a search page, until Ctrl-C.

    Examples:

    - `ccp serve birds.index`
    - `ccp serve birds.index --port 8080 --map pca`
    - `ccp serve runs/birds --host 0.0.0.0`
    """
    if map_kind not in ("tsne", "pca"):
        raise UserError(f"--map {map_kind} is unknown; give tsne or pca.")
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(f"The server needs {error.name}: pip install 'ccp-dml[serve]'.") from None
    with _listening(host, port) as listener:
        app = _app_of(what, host, model, device, map_kind == "tsne", settings, trust_code)
        run_server(app, listener, lambda: _announce(host, listener.getsockname()[1]))


def run_server(app: "FastAPI", listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Answer on an open socket until SIGINT or SIGTERM; what is being answered then is finished first."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_start()

    async def ending_quietly(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            if not server.should_exit:
                raise  # else it took longer than a stopped server waits, which is no fault to report

    settings = uvicorn.Config(
        ending_quietly,
        log_level="warning",
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
        server_header=False,
        backlog=512,
        lifespan="off",
    )
    server = Server(settings)
    # uvicorn raises the signal again once it has ended; being stopped is how a server ends well.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listener])


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open a socket before the model is loaded, so that a port in use is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, TypeError) as error:  # the second of a name that cannot be encoded, such as ü..b
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"{host}:{port} cannot be listened on ({reason}); choose another --port or --host."
            ) from None
        yield listener


def _app_of(
    what: str,
    host: str,
    model: Path | None,
    device: str,
    with_tsne: bool,
    settings: list[str] | None,
    trust_code: bool,
) -> "FastAPI":
    from ccp_dml.serving.search.image_search import open_index
    from ccp_dml.serving.search.index_store import is_index
    from ccp_dml.serving.search.vector_engine import is_address
    from ccp_dml.serving.stored_model import load
    from ccp_dml.serving.web.server import make_app

    hosts: list[str] | None = ["127.0.0.1", "localhost", "[::1]"] if host in LOOPBACK else None
    path = Path(what).expanduser()
    if is_index(path) or is_address(what):
        opened = open_index(what, model, device, settings=settings or [], trust_code=trust_code)
        if opened.gallery.warning is not None:
            warn(opened.gallery.warning)
        return make_app(opened.model, opened.gallery, hosts, with_tsne)
    if path.is_dir():
        alone = load(path, device, settings=settings or [], trust_code=trust_code)
        if alone.transform is None:
            raise UserError(f"{what} was trained on vectors, not on images; use it in Python, by ccp.load.")
        return make_app(alone, None, hosts, with_tsne)
    raise UserError(f"There is no model or index {what}; give a run, an exported model, or what `ccp index` wrote.")


def _announce(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    out.print(f"Serving at http://{shown}:{port}    (Ctrl-C stops)", soft_wrap=True)
    if host not in LOOPBACK:
        out.print("Anybody who can reach this machine can search; there is no password.", style="yellow")
