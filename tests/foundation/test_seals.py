"""Any bit of a sealed file that changes is noticed; files of versions without seals are told apart."""

import random

import pytest
import torch
from safetensors.torch import save_file

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import load_checkpoint, load_note, load_weights, save_checkpoint, save_weights
from ccp_dml.foundation.seals import DamagedError, check_safetensors, check_torch_file

STATE = {"weights": {"a": torch.arange(12.0), "b": torch.zeros(3, dtype=torch.long)}, "step": 7, "name": "x"}


def save_sealed(path):
    if path.suffix == ".pt":
        save_checkpoint(path, STATE)
        return load_checkpoint
    save_weights(path, STATE["weights"], note='with "quotes"')
    return load_weights


@pytest.mark.parametrize("name", ["c.pt", "w.safetensors"])
def test_every_flipped_bit_is_noticed(tmp_path, name):
    path = tmp_path / name
    load = save_sealed(path)
    content = path.read_bytes()
    places = range(8 * len(content))
    end = places[-8 * 80 :]  # where a torch file has its seal
    start = places[: 8 * 120]  # where a safetensors file has it
    for place in {*random.Random(0).sample(places, 1500), *start, *end}:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError):
            load(path)
    path.write_bytes(content)
    load(path)


@pytest.mark.parametrize("name", ["c.pt", "w.safetensors"])
@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c + b"\0", lambda c: c[:0], lambda c: c[: len(c) // 2]])
def test_a_file_of_another_length_is_noticed(tmp_path, name, change):
    path = tmp_path / name
    load = save_sealed(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError):
        load(path)


def test_files_without_a_seal_are_read(tmp_path):
    torch.save(STATE, tmp_path / "old.pt")
    assert not check_torch_file(tmp_path / "old.pt")
    assert load_checkpoint(tmp_path / "old.pt")["step"] == 7
    save_file(STATE["weights"], tmp_path / "old.safetensors", {"note": "in words"})
    assert not check_safetensors(tmp_path / "old.safetensors")
    assert load_note(tmp_path / "old.safetensors") == "in words"
    save_file(STATE["weights"], tmp_path / "older.safetensors")
    assert not check_safetensors(tmp_path / "older.safetensors")


def test_sealed_files_say_so_and_equal_ones_have_equal_bytes(tmp_path):
    for name in ("a", "b"):
        save_checkpoint(tmp_path / f"{name}.pt", STATE)
        save_weights(tmp_path / f"{name}.safetensors", STATE["weights"], "note")
    assert check_torch_file(tmp_path / "a.pt")
    assert check_safetensors(tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert load_note(tmp_path / "a.safetensors") == "note"


def test_metadata_of_another_program_is_no_seal(tmp_path):
    save_file(STATE["weights"], tmp_path / "other.safetensors", {"format": "pt"})
    with pytest.raises(DamagedError, match="checksum"):
        check_safetensors(tmp_path / "other.safetensors")


def test_a_header_that_claims_more_than_the_file_holds(tmp_path):
    (tmp_path / "w.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(DamagedError, match="header"):
        check_safetensors(tmp_path / "w.safetensors")
