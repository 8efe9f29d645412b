"""Damaged files are named with the remedy of whoever reads them, and changed ones by their checksums."""

import json
from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.documents import (
    forget_checksums,
    read_json,
    read_toml,
    refuse_changed_document,
    replace_document,
    write_checksums,
)

RESULT = '{"test": 1}\n'


def test_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": 1}')
    (tmp_path / "a.toml").write_text("x = 1")
    assert read_json(tmp_path / "a.json") == read_toml(tmp_path / "a.toml") == {"x": 1}
    assert read_json(tmp_path / "missing.json") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "a is not valid JSON"), (b"[]", "a must hold a JSON object, not a list"), (b"\xff", "a is not valid JSON")],
)
def test_damaged_json(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=rf"{message}.*; call a friend\.$"):
        read_json(tmp_path / "a", remedy="call a friend")


@pytest.mark.parametrize("content", [b"x = ", b"\xff"])
def test_damaged_toml(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=r"a is not valid TOML.*; call a friend\.$"):
        read_toml(tmp_path / "a", remedy="call a friend")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config.toml").write_text("a = 1\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 2}\n')
    write_checksums(tmp_path, RESULT)
    (tmp_path / "result.json").write_text(RESULT)
    return tmp_path


def test_documents_as_they_were_written_are_read(run):
    for name in ("config.toml", "metrics.jsonl", "result.json"):
        refuse_changed_document(run / name)


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "result.json"])
def test_a_changed_or_missing_document_is_refused(run, name):
    text = (run / name).read_text()
    (run / name).write_text(text.replace("1", "3").replace("2", "3"))
    with pytest.raises(UserError, match=rf"{name} is not what the run wrote"):
        refuse_changed_document(run / name)
    (run / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is not what the run wrote"):
        refuse_changed_document(run / name)


def test_nothing_is_said_of_other_files_and_of_runs_without_checksums(run):
    (run / "notes.json").write_text("{}")
    refuse_changed_document(run / "notes.json")
    (run / "config.toml").write_text("a = 2\n")
    forget_checksums(run)
    refuse_changed_document(run / "config.toml")


def test_a_document_written_anew_has_its_new_checksum(run):
    replace_document(run / "certificate.json", "{}\n")
    replace_document(run / "certificate.json", '{"a": 1}\n')
    refuse_changed_document(run / "certificate.json")
    assert len(json.loads((run / "checksums.json").read_text())["certificate.json"]) == 1


def test_a_kill_between_checksum_and_document_leaves_both_valid(run, monkeypatch):
    replace_document(run / "certificate.json", "{}\n")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ccp_dml.records.documents.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        replace_document(run / "certificate.json", '{"a": 1}\n')
    refuse_changed_document(run / "certificate.json")  # the old one
    (run / "certificate.json").write_text('{"a": 1}\n')
    refuse_changed_document(run / "certificate.json")  # the new one


@pytest.mark.parametrize("content", ["", "[]", "3", '{"result.json": 3}', "[" * 100_000])
def test_damaged_checksums_are_named(run, content):
    (run / "checksums.json").write_text(content)
    with pytest.raises(UserError, match=r"checksums\.json is damaged"):
        refuse_changed_document(run / "result.json")
