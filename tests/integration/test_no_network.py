"""No command opens a connection unless it was asked to: the interpreter reports every use of a socket."""

import socket
import sys

import pytest

from ccp_dml.cli import main

SETTINGS = ("train.max_steps=2", "train.evaluate_every=2", "train.classes_per_batch=4", "model.embedding_dim=4")
EVENTS = {
    "socket.connect",
    "socket.sendto",
    "socket.sendmsg",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostbyname",
}
watch = {"is_on": False, "tried": []}


def hear(event, arguments):
    """Refuse to reach anything while the watch is on; this hook can never be taken away again."""
    if not watch["is_on"] or event not in EVENTS:
        return
    if isinstance(arguments[0], socket.socket):
        if arguments[0].family == getattr(socket, "AF_UNIX", None):
            return
        arguments = arguments[1:]
    watch["tried"].append((event, arguments[0]))
    raise OSError("no network in this test")


@pytest.fixture(scope="module")
def _hook():
    sys.addaudithook(hear)


@pytest.fixture
def connections(_hook):
    """Addresses that anything in this process has tried to reach; nothing is."""
    watch.update(is_on=True, tried=[])
    yield watch["tried"]
    watch["is_on"] = False


def options(*settings):
    return [part for one in settings for part in ("--set", one)]


def test_training_scoring_and_reporting_ask_the_network_for_nothing(features, tmp_path, connections, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = str(tmp_path / "run")
    assert main(["train", "features", "c2-ccp", *options(f"data.path={features}", *SETTINGS), "--out", run]) == 0
    for command in (["evaluate", run], ["report", run], ["certify", run], ["list", "datasets"], ["config", "glyphs"]):
        assert main(command) == 0
    assert connections == []


def test_a_network_at_work_asks_the_network_for_nothing(photos, photo_run, tmp_path, connections, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, index, picture = str(photo_run[0]), str(tmp_path / "index"), str(photos / "class_00" / "0.png")
    for command in (
        ["index", run, str(photos), "--out", index],
        ["search", index, picture],
        ["index", "show", index],
        ["embed", run, str(photos), "--out", str(tmp_path / "vectors.npz")],
        ["compare", picture, picture, "--model", run],
        ["export", run, "--out", str(tmp_path / "export")],
        ["data", "check", str(photos)],
        ["doctor"],
    ):
        assert main(command) in (0, 2), command  # 2: what was found is no cause to ask anybody
    assert connections == []


def test_the_watch_would_notice(connections):
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with socket.socket() as direct, pytest.raises(OSError, match="no network"):
        direct.connect(("192.0.2.1", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as other, pytest.raises(OSError, match="no network"):
        other.sendto(b"x", ("192.0.2.1", 53))
    events = [event for event, _ in connections]
    assert events == ["socket.getaddrinfo", "socket.connect", "socket.sendto"]
