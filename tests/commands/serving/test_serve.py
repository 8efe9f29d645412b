"""`ccp serve` as a process: it answers, it ends cleanly, it says what is wrong before it loads anything."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.running_server import RunningServer

from ccp_dml.cli import main


@pytest.fixture
def start():
    """Start `ccp serve` on a free port; the process and how to call it."""
    running = []

    def begin(*arguments):
        command = [sys.executable, "-m", "ccp_dml", "serve", *map(str, arguments), "--port", "0"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        )
        running.append(process)
        line = process.stdout.readline()
        assert "Serving at http://127.0.0.1:" in line, process.stderr.read()
        return process, RunningServer(line.split()[2])

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def stop(process, number):
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_an_index_is_served_and_stopped_by_ctrl_c(start, birds, photos):
    process, server = start(birds)
    assert server.get("/health").json()["index"]["images"] == 80
    picture = ((photos / "class_03" / "1.png").read_bytes(), "image/png")
    found = server.post("/search", {"image": picture}, k=3).json()["results"]
    assert found[0]["path"] == "class_03/1.png"
    assert found[0]["distance"] < 1e-3
    begun = time.monotonic()
    server.post("/search", {"image": picture}, k=3)
    assert time.monotonic() - begun < 5
    code, errors = stop(process, signal.SIGINT)
    assert code == 0
    assert errors == ""


def test_stopped_while_answering_it_ends_cleanly(start, birds, photos):
    process, server = start(birds)
    picture = ((photos / "class_03" / "1.png").read_bytes(), "image/png")
    host, port = server.address.removeprefix("http://").split(":")
    half = socket.create_connection((host, int(port)))
    half.sendall(
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: 9999\r\n\r\nabc"
    )
    statuses = []

    def ask():
        for _ in range(20):
            try:
                statuses.append(server.post("/search", {"image": picture}).status)
            except OSError:
                return

    clients = [threading.Thread(target=ask) for _ in range(8)]
    for client in clients:
        client.start()
    while len(statuses) < 8:
        time.sleep(0.01)
    code, errors = stop(process, signal.SIGTERM)
    for client in clients:
        client.join()
    half.close()
    assert code == 0
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 8
    assert "Traceback" not in errors


def test_a_model_alone_and_a_pushed_index_are_served(start, photo_run, birds, photos, tmp_path, capsys):
    _, server = start(photo_run[0])
    assert server.get("/health").json()["index"] is None
    picture = ((photos / "class_03" / "1.png").read_bytes(), "image/png")
    assert server.post("/same", {"a": picture, "b": picture}).json()["same"] is True
    pytest.importorskip("milvus_lite")
    address = str(tmp_path / "engine.db")
    push = [
        sys.executable,
        "-m",
        "ccp_dml",
        "index",
        "push",
        str(birds),
        address,
    ]  # a file serves one process at a time
    pushed = subprocess.run(push, capture_output=True, text=True, check=True)
    assert pushed.stderr == ""
    process, pushed = start(address, "--map", "pca")
    found = pushed.post("/search", {"image": picture}, k=3).json()["results"]
    assert found[0]["path"] == "class_03/1.png"
    assert len(pushed.get("/index/map").json()["ids"]) == 80
    assert pushed.get("/index").json()["labels"]["class_03"] == 5
    assert main(["search", address, str(photos / "class_03" / "1.png")]) == 2
    assert "an embedded engine serves one process at a time" in " ".join(capsys.readouterr().err.split())
    assert stop(process, signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "There is no model or index nothing"),
        (["nothing.db"], "There is no nothing.db"),
        (["{tmp}"], "{tmp}"),
        (["{birds}", "--map", "globe"], "--map globe is unknown"),
        (["{birds}", "--host", "300.1.1.1"], "cannot be listened on"),
        (["{birds}", "--host", "ü..b"], "cannot be listened on"),
    ],
)
def test_mistakes_end_in_a_sentence(birds, tmp_path, capsys, arguments, message):
    names = {"birds": birds, "tmp": tmp_path}
    assert main(["serve", *(part.format(**names) for part in arguments), "--port", "0"]) == 2
    assert message.format(**names) in " ".join(capsys.readouterr().err.split())


def test_a_port_in_use_is_said_before_anything_is_loaded(birds, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(birds), "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot be listened on (Address already in use); choose another --port" in " ".join(
        capsys.readouterr().err.split()
    )
