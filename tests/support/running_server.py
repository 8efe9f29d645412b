"""A server on a free port of this machine, in a thread of the test."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes
    headers: Any

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class RunningServer:
    """Calls a server the way programs do."""

    address: str

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, None, headers)

    def call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        request = urllib.request.Request(self.address + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, response.read(), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), error.headers)

    def post(self, path: str, files: dict[str, tuple[bytes, str]] | None = None, **fields: Any) -> Answer:
        """Send a form with files (content, type) and fields."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        ]
        for name, (content, kind) in (files or {}).items():
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
            parts.append(head.encode() + f"Content-Type: {kind}\r\n\r\n".encode() + content + b"\r\n")
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        return self.call("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})


@contextmanager
def serving(app: Any) -> Iterator[RunningServer]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield RunningServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve_app() -> Iterator[Callable[[Any], RunningServer]]:
    running = []

    def start(app: Any) -> RunningServer:
        context = serving(app)
        running.append(context)
        return context.__enter__()

    yield start
    for context in running:
        context.__exit__(None, None, None)
