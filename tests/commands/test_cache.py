"""`ccp cache` as a user calls it."""

import json

import pytest
from support.frozen_runs import Counter, entries, training_features

from ccp_dml.cli import main


def test_cache_command(frozen_settings, tmp_path, capsys):
    training_features(frozen_settings())
    with pytest.raises(KeyboardInterrupt):
        training_features(frozen_settings("data.crop=30"), Counter(breaks_at=16))
    folder = ["--folder", str(tmp_path / "cache")]
    assert main(["cache", *folder, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["entries"]
    assert {entry["state"] for entry in shown} == {"complete", "unfinished"}
    assert {entry["images"] for entry in shown} == {40}
    assert main(["cache", *folder]) == 0
    assert "small_cnn" in capsys.readouterr().out
    unfinished = next(entry["key"] for entry in shown if entry["state"] == "unfinished")
    assert main(["cache", unfinished[:6], "--clear", *folder]) == 0
    assert len(entries(tmp_path)) == 1
    assert main(["cache", "zzz", "--clear", *folder]) == 2
    assert "begins with 'zzz'" in capsys.readouterr().err
    assert main(["cache", "", "--clear", *folder]) == 2
    assert "KEY is empty" in capsys.readouterr().err
    assert main(["cache", "--clear", *folder]) == 0
    assert entries(tmp_path) == []
    assert main(["cache", "--folder", str(tmp_path / "nowhere")]) == 2


def test_clearing_the_cache_touches_nothing_else(frozen_settings, tmp_path):
    training_features(frozen_settings())
    (tmp_path / "cache" / "thesis").mkdir()
    (tmp_path / "cache" / ("0" * 32)).mkdir()  # named like an entry, but none
    assert main(["cache", "--clear", "--folder", str(tmp_path / "cache")]) == 0
    assert entries(tmp_path) == ["0" * 32, "thesis"]
