"""Make bad inputs for a network at work: damaged indexes and exports, odd conditions, and requests to its server."""

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from attack.bad_inputs import Attack, damage, image_bytes, odd_text
from attack.verdicts import SilentlyWrong
from attack.works import Ground
from ccp_dml.cli import main
from ccp_dml.errors import UserError
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.stored_model import load
from ccp_dml.serving.web.server import make_app

PATHS = (
    "/", "/health", "/embed", "/search", "/same", "/images/1", "/images/99", "/images/-1", "/images/" + "9" * 5000,
    "/images/1?size=large", "/index", "/index/map", "/index/confusions", "/page/search.js", "/page/../../etc/passwd",
    "/page/%2e%2e%2fserver.py", "/docs", "/openapi.json", "/nothing", "/search?k=5&id=1", "/search?where=" + "(" * 3000,
)  # fmt: skip
FIELDS = ("id", "k", "where", "within", "false_match_rate", "image", "")
VALUES = ("1", "-1", "0", "9" * 30, "9" * 5000, "nan", "inf", "1e-320", 'label = "class 1"', "label = ", "((((", "")
Scope = dict[str, Any]


class Serving:
    """An index and an export of a small network, to be damaged and called; the inputs are kinds of `bad_inputs`."""

    def __init__(self, ground: Ground) -> None:
        self.index, self.export = ground.folder / "small.index", ground.folder / "small export"
        if not self.index.exists():
            assert ground.index(self.index) == 0
        if not self.export.exists():
            assert ground.export(self.export) == 0
        self.picture = sorted(ground.photos.rglob("*.png"))[0]
        self.model = load(ground.photo_run, "cpu")
        self.query = self.model.comparable(self.model.embed([self.picture]))
        self.found = self.search(self.index)
        self.vector = load(self.export, "cpu").embed([self.picture])
        self.app = make_app(self.model, SearchIndex.open(self.index), None, with_tsne=False)

    def kinds(self) -> dict[str, Callable[[random.Random, Path], Attack]]:
        return {
            "damaged indexes": self.damaged_index,
            "conditions of a search": self.condition,
            "damaged exports": self.damaged_export,
            "command lines": self.command_line,
            "requests to the server": self.request,
        }

    def search(self, folder: Path, where: str | None = None) -> list[tuple[str, str | None, float]]:
        with closing(SearchIndex.open(folder)) as index:
            hits = index.search(self.query, 5, where)[0]
            index.label_counts(), index.attribute_values(), index.missing_images()
            return [(hit.item.path, hit.item.label, hit.distance) for hit in hits]

    def damaged_index(self, draw: random.Random, folder: Path) -> Attack:
        copy = damaged_copy(draw, self.index, folder / "index")

        def attack() -> None:
            if self.search(copy) != self.found:
                raise SilentlyWrong("a damaged index finds other images")

        return attack

    def condition(self, draw: random.Random, _: Path) -> Attack:
        words = ["label", "=", "!=", "<", "and", "or", "not", "(", ")", '"class 1"', "1", "path", "in", "like"]
        text = " ".join(draw.choice(words) for _ in range(draw.randrange(8)))
        if draw.random() < 0.2:
            text = f'label {draw.choice(["=", "!="])} "class {draw.randrange(9)}" {text if draw.random() < 0.5 else ""}'
        where = text if draw.random() < 0.6 else odd_text(draw) if draw.random() < 0.7 else "(" * draw.randrange(9000)
        return lambda: self.search(self.index, where)

    def damaged_export(self, draw: random.Random, folder: Path) -> Attack:
        copy = damaged_copy(draw, self.export, folder / "export")

        def attack() -> None:
            if not np.array_equal(load(copy, "cpu").embed([self.picture]), self.vector):
                raise SilentlyWrong("a damaged export gives other vectors")

        return attack

    def command_line(self, draw: random.Random, folder: Path) -> Attack:
        """Mistype a command: wrong kinds of files in every place, options that do not belong, odd texts."""
        places = [self.index, self.export, self.picture, folder, folder / "none", Path("/dev/null"), Path("/proc")]
        places += [folder / "[/b]", Path(odd_text(draw).replace("\x00", "")[:300] or "x")]
        commands = [
            "train", "config", "evaluate", "certify", "embed", "compare", "export", "list", "report", "benchmark",
            "study", "search", "cache", "doctor", "data check", "data verify", "data prepare", "index", "index show",
            "index refresh", "index remove", "index push",
        ]  # fmt: skip
        command = draw.choice(commands).split()
        arguments = [str(draw.choice(places)) for _ in range(draw.randrange(3))]
        options = ["--out", "--root", "--from", "--set", "--json", "--device", "--where", "--data", "--seed", "--model"]
        for _ in range(draw.randrange(3)):
            arguments += [draw.choice(options)]
            arguments += [] if arguments[-1] == "--json" else [draw.choice([str(draw.choice(places)), odd_text(draw)])]
        outputs = [str(folder / "none"), str(folder / "[/b]")]
        arguments = [
            draw.choice(outputs) if before == "--out" or before == "--root" else text
            for before, text in zip(["", *arguments], arguments, strict=False)
        ]
        if "prepare" in command and "--from" not in arguments:
            arguments += ["--from", str(folder / "none")]  # or it would ask the network

        def attack() -> None:
            code = main([*command, *(text.replace("\x00", "") for text in arguments)])
            if code == 1:
                raise AssertionError(f"ccp {command} {arguments} ended with 1")
            if code:
                raise UserError(f"exit code {code}")

        return attack

    def request(self, draw: random.Random, _: Path) -> Attack:
        scope, body = drawn_request(draw)

        def attack() -> None:
            with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have a loop in this thread
                status, content = apart.submit(asyncio.run, answer_of(self.app, scope, body)).result()
            if status >= 500:
                raise AssertionError(f"{scope['method']} {scope['path']}: {status} {content[:300]!r}")
            if status >= 400:
                raise UserError(str(json.loads(content)["detail"]))

        return attack


def damaged_copy(draw: random.Random, folder: Path, copy: Path) -> Path:
    """Copy a folder, and damage one of its files."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    damage(draw, draw.choice(sorted(path for path in copy.rglob("*") if path.is_file())))
    return copy


def drawn_request(draw: random.Random) -> tuple[Scope, bytes]:
    path, _, query = draw.choice(PATHS).partition("?")
    method = draw.choice(["GET", "POST", "POST", "POST", "PUT", "HEAD"]) if draw.random() < 0.2 else "POST"
    if path not in ("/embed", "/search", "/same") and draw.random() < 0.9:
        method = "GET"
    kind, body = drawn_body(draw)
    if draw.random() < 0.1:
        body = body[: draw.randrange(len(body) + 1)]
    headers = [(b"host", b"127.0.0.1"), (b"content-type", kind.encode())]
    if draw.random() < 0.2:
        headers.append((b"content-length", draw.choice([b"0", b"-1", b"9" * 12, b"9" * 5000, b"x"])))
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path}
    scope |= {"raw_path": path.encode(), "query_string": query.encode(), "headers": headers, "scheme": "http"}
    return scope | {"server": ("127.0.0.1", 80), "client": ("127.0.0.1", 9), "root_path": ""}, body


def drawn_body(draw: random.Random) -> tuple[str, bytes]:
    """Draw a content type and a body that may or may not belong to it."""
    fields = {draw.choice(FIELDS): draw.choice(VALUES) for _ in range(draw.randrange(4))}
    if draw.random() < 0.5:
        boundary = "b"
        parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{v}\r\n' for name, v in fields.items()]
        sent = "".join(parts).encode()
        for name in draw.choice([["image"], ["a", "b"], ["image"] * 40, []]):
            type_ = draw.choice(["image/png", "text/html", "application/octet-stream"])
            head = (
                f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\nContent-Type: {type_}\r\n\r\n'
            )
            sent += head.encode() + image_bytes(draw) + b"\r\n"
        return f"multipart/form-data; boundary={draw.choice([boundary, 'c', ''])}", sent + b"--b--\r\n"
    odd = draw.choice([b"", b"{}", b"[]", b"[" * 200_000, b'{"id":' + b"9" * 6000 + b"}", b"\xff", draw.randbytes(40)])
    written = json.dumps(
        {name: draw.choice([value, 1, None, [], {}, 1e400]) for name, value in fields.items()}
    ).encode()
    return draw.choice(
        [
            ("application/json", written),
            ("application/json", odd),
            ("application/x-www-form-urlencoded", "&".join(f"{n}={v}" for n, v in fields.items()).encode()),
            ("image/png", image_bytes(draw)),
            ("application/octet-stream", odd),
            ("", odd),
        ]
    )


async def answer_of(app: Any, scope: Scope, body: bytes) -> tuple[int, bytes]:
    """Call the server as uvicorn does; the status and the body of its answer."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], content or b'{"detail": "an answer without a body"}'
