import pickle

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.checkpoint import (
    load_checkpoint,
    load_note,
    load_weights,
    random_states,
    restore_random_states,
    save_checkpoint,
    save_weights,
)


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    state = {"a": {"weight": torch.randn(3, 2), "step": 7}, "name": "x", "nothing": None, "rate": 0.1}
    save_checkpoint(tmp_path / "c.pt", state)
    found = load_checkpoint(tmp_path / "c.pt")
    assert torch.equal(found["a"]["weight"], state["a"]["weight"])
    assert (found["a"]["step"], found["name"], found["nothing"], found["rate"]) == (7, "x", None, 0.1)


def test_a_mapped_checkpoint_is_the_same_and_can_be_replaced_meanwhile(tmp_path):
    state = {"a": {"weight": torch.randn(300, 2)}, "step": 7}
    save_checkpoint(tmp_path / "c.pt", state)
    found = load_checkpoint(tmp_path / "c.pt", mapped=True)
    save_checkpoint(tmp_path / "c.pt", {"other": 1})
    assert torch.equal(found["a"]["weight"], state["a"]["weight"])
    assert found["step"] == 7
    (tmp_path / "c.pt").write_bytes(b"PK damaged")
    with pytest.raises(UserError):
        load_checkpoint(tmp_path / "c.pt", mapped=True)


class Malicious:
    def __reduce__(self):
        return (open, ("ran.txt", "w"))


def test_code_in_a_checkpoint_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Malicious()}, tmp_path / "c.pt")
    (tmp_path / "d.pt").write_bytes(pickle.dumps(Malicious()))
    for name in ("c.pt", "d.pt"):
        with pytest.raises(UserError, match="not a readable checkpoint"):
            load_checkpoint(tmp_path / name)
    assert not (tmp_path / "ran.txt").exists()


def test_a_checkpoint_that_is_missing_or_cut_off(tmp_path):
    with pytest.raises(UserError, match="nothing to resume"):
        load_checkpoint(tmp_path / "c.pt")
    save_checkpoint(tmp_path / "c.pt", {"a": torch.randn(100)})
    (tmp_path / "c.pt").write_bytes((tmp_path / "c.pt").read_bytes()[:-200])
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(tmp_path / "c.pt")


def test_weights_and_their_note(tmp_path):
    weights = {"a": torch.randn(2, 3).T, "b": torch.zeros(0)}
    save_weights(tmp_path / "w.safetensors", weights, note="in words")
    found = load_weights(tmp_path / "w.safetensors")
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    assert load_note(tmp_path / "w.safetensors") == "in words"
    save_weights(tmp_path / "w.safetensors", weights)
    assert load_note(tmp_path / "w.safetensors") is None
    (tmp_path / "w.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=r"w\.safetensors"):
        load_weights(tmp_path / "w.safetensors")


def test_random_numbers_go_on_where_they_were():
    states = random_states()
    first = torch.rand(4)
    torch.rand(9)
    restore_random_states(states)
    assert torch.equal(torch.rand(4), first)
