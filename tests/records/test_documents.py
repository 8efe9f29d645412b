"""Damaged files are named with the remedy of whoever reads them."""

from pathlib import Path

import pytest

from ccp_dml.errors import UserError
from ccp_dml.records.documents import read_json, read_toml


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
