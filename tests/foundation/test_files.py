import errno
import os
import stat
from pathlib import Path

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from ccp_dml.foundation.files import atomic, from_json, from_toml, is_of_the_system, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_no_scratch(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def fail_half_way():
        with atomic(path) as scratch:
            scratch.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"):
        write_text(pipe, "new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_written_files_have_ordinary_permissions(tmp_path):
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"ä": 1})
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert path.read_text() == '{\n  "ä": 1\n}\n'


def test_checkpoint_round_trip(tmp_path):
    state = {"a": torch.arange(3), "b": {"c": -float("inf"), "d": None, "e": "text"}}
    save_checkpoint(tmp_path / "c.pt", state)
    loaded = load_checkpoint(tmp_path / "c.pt")
    assert torch.equal(loaded["a"], state["a"])
    assert loaded["b"] == state["b"]


def test_a_checkpoint_with_code_in_it_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"trap": Trap()}, tmp_path / "c.pt")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(tmp_path / "c.pt")
    assert not (tmp_path / "sprung").exists()


def test_weights_round_trip_and_damage(tmp_path):
    save_weights(tmp_path / "w.safetensors", {"w": torch.arange(6.0).reshape(2, 3).T})
    assert torch.equal(load_weights(tmp_path / "w.safetensors")["w"], torch.arange(6.0).reshape(2, 3).T)
    (tmp_path / "w.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"w\.safetensors"):
        load_weights(tmp_path / "w.safetensors")


def test_no_room_for_a_checkpoint_or_weights(tmp_path, monkeypatch):
    file = tmp_path / "checkpoint.pt"
    save_checkpoint(file, {"step": 1})

    def broken_off(*_):
        raise RuntimeError("unexpected pos 3008 vs 2902\nmore")

    def no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torch.save", broken_off)
    with pytest.raises(
        UserError, match=r"checkpoint\.pt cannot be written: make room.*unharmed.*unexpected pos 3008 vs"
    ):
        save_checkpoint(file, {"step": 2})
    monkeypatch.setattr("ccp_dml.foundation.checkpoint.save_file", no_room)
    with pytest.raises(UserError, match=r"w\.safetensors cannot be written: make room.*No space left on device\.\)"):
        save_weights(tmp_path / "w.safetensors", {})
    assert load_checkpoint(file) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_folder_without_rights_is_not_called_full(tmp_path, monkeypatch):
    def not_allowed(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("torch.save", not_allowed)
    with pytest.raises(UserError, match=f"get the right to write to {tmp_path};.*Read-only file system") as refusal:
        save_checkpoint(tmp_path / "checkpoint.pt", {})
    assert "make room" not in str(refusal.value)


def test_file_systems_of_the_kernel_are_recognised(tmp_path):
    assert is_of_the_system(Path("/proc"))
    assert is_of_the_system(Path("/proc/self/fd"))
    assert is_of_the_system(Path("/dev/fd"))
    assert not is_of_the_system(tmp_path)
    assert not is_of_the_system(Path("/dev/shm/photos"))  # a disk in memory holds data as any other
    (tmp_path / "link").symlink_to("/sys")
    assert is_of_the_system(tmp_path / "link")


@pytest.mark.parametrize("parse", [from_json, from_toml])
@pytest.mark.parametrize("text", ["[" * 100_000, "a = " + "[" * 100_000, "{", "="])
def test_wrong_text_is_a_value_error_however_deep_it_is(parse, text):
    with pytest.raises(ValueError):  # noqa: PT011 whose words are those of the parser
        parse(text)


def test_right_text_is_parsed():
    assert from_json('{"a": [1]}') == {"a": [1]} == from_toml("a = [1]")
