"""No command opens a connection unless it was asked to: every socket of a whole training is watched."""

import socket

import pytest

from ccp_dml.cli import main

SETTINGS = ("train.max_steps=2", "train.evaluate_every=2", "train.classes_per_batch=4", "model.embedding_dim=4")


@pytest.fixture
def connections(monkeypatch):
    """Addresses that anything in this process has tried to reach; nothing is."""
    tried = []

    def refuse(self, address, *_):
        if self.family != getattr(socket, "AF_UNIX", None):
            tried.append(address)
            raise OSError("no network in this test")
        return original(self, address)

    def look_up(host, *_, **__):
        tried.append(host)
        raise OSError("no network in this test")

    original = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return tried


def test_training_scoring_and_reporting_ask_the_network_for_nothing(features, tmp_path, connections, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = [part for one in (f"data.path={features}", *SETTINGS) for part in ("--set", one)]
    run = str(tmp_path / "run")
    assert main(["train", "features", "c2-ccp", *options, "--out", run]) == 0
    for command in (["evaluate", run], ["report", run], ["certify", run], ["list", "datasets"], ["config", "glyphs"]):
        assert main(command) == 0
    assert connections == []


def test_the_watch_would_notice(connections):
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    assert connections == ["example.org"]
