"""Weights from files: what loads, and what is refused in which words."""

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.models.weights import load_weights, read_state_dict


def make_network(seed: int) -> nn.Sequential:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with torch.no_grad():
        for number, value in enumerate(network.state_dict().values()):
            if value.is_floating_point():
                value.fill_(seed + number)
    return network


def state_with_classifier() -> dict[str, Tensor]:
    return {**make_network(1).state_dict(), "fc.weight": torch.zeros(10, 4), "fc.bias": torch.zeros(10)}


def assert_loaded(network: nn.Module) -> None:
    for name, value in make_network(1).state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value)


def save_zip(state: object, path: Path) -> None:
    torch.save(state, path)


def save_legacy(state: object, path: Path) -> None:
    torch.save(state, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    ("file", "save"), [("w.safetensors", save_file), ("w.pth", save_zip), ("w.pt", save_zip), ("old.pth", save_legacy)]
)
def test_formats(tmp_path: Path, file: str, save: object) -> None:
    path = tmp_path / file
    save(state_with_classifier(), path)  # type: ignore[operator]
    network = make_network(5)
    load_weights(network, path, "tiny", ["fc."])
    assert_loaded(network)


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_state_dict_nested_in_a_checkpoint(tmp_path: Path, key: str) -> None:
    torch.save({"epoch": 3, key: make_network(1).state_dict()}, tmp_path / "w.pth")
    network = make_network(5)
    load_weights(network, tmp_path / "w.pth", "tiny")
    assert_loaded(network)


@pytest.mark.parametrize("prefix", ["backbone.", "backbone.network."])
def test_the_backbone_is_taken_out_of_the_file_of_a_run(tmp_path: Path, prefix: str) -> None:
    entries = {f"{prefix}{name}": value for name, value in make_network(1).state_dict().items()}
    save_file({**entries, "linear.weight": torch.zeros(2, 4)}, tmp_path / "best.safetensors")
    network = make_network(5)
    load_weights(network, tmp_path / "best.safetensors", "tiny")
    assert_loaded(network)


@pytest.mark.parametrize(
    "wrapper", [nn.DataParallel, torch.compile, lambda network: torch.compile(nn.DataParallel(network))]
)
def test_the_name_of_a_wrapper_that_was_saved_with_its_network_is_left_out(tmp_path: Path, wrapper: object) -> None:
    torch.save(wrapper(make_network(1)).state_dict(), tmp_path / "wrapped.pth")  # type: ignore[operator]
    network = make_network(5)
    load_weights(network, tmp_path / "wrapped.pth", "tiny")
    assert_loaded(network)


def test_a_network_whose_own_names_begin_with_backbone_keeps_them(tmp_path: Path) -> None:
    class Wrapped(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.backbone = make_network(seed)

    save_file(Wrapped(1).state_dict(), tmp_path / "w.safetensors")
    network = Wrapped(5)
    load_weights(network, tmp_path / "w.safetensors", "tiny")
    assert_loaded(network.backbone)


def test_converted_caffe_weights_with_row_vectors_and_without_counters(tmp_path: Path) -> None:
    state = make_network(1).state_dict()
    del state["1.num_batches_tracked"]
    rows = {name: value.unsqueeze(0) if name.startswith("1.") else value for name, value in state.items()}
    torch.save(rows, tmp_path / "w.pth")
    network = make_network(5)
    load_weights(network, tmp_path / "w.pth", "tiny")
    assert_loaded(network)


def test_classifier_is_dropped_only_if_it_is_known(tmp_path: Path) -> None:
    torch.save(state_with_classifier(), tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"2 are unexpected \(fc.weight, fc.bias\)"):
        load_weights(make_network(5), tmp_path / "w.pth", "tiny")


def test_another_network_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)).state_dict(), path)
    network = make_network(1)
    with pytest.raises(UserError) as refusal:
        load_weights(network, path, "tiny")
    message = str(refusal.value)
    assert "does not hold the weights of tiny" in message
    assert "2 of 7 entries are missing (1.running_mean, 1.running_var)" in message
    assert "4 are unexpected (2.weight, 2.bias, 3.weight, ...)" in message
    assert "4 have another shape (first 0.weight: (2, 2) instead of (4, 3, 3, 3))" in message
    assert str(path) in message
    assert_loaded(network)


def test_another_width_is_refused_by_shape(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({**make_network(1).state_dict(), "0.weight": torch.zeros(4, 1, 3, 3)}, path)
    with pytest.raises(UserError, match=r"1 have another shape \(first 0.weight: \(4, 1, 3, 3\) instead of \(4, 3, 3,"):
        load_weights(make_network(5), path, "tiny")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.pth", tmp_path):
        with pytest.raises(UserError, match=f"no weights file {path}"):
            read_state_dict(path)


@pytest.mark.parametrize("content", [b"", b"hello, I am no tensor", b"PK\x03\x04 broken zip", bytes(range(256))])
@pytest.mark.parametrize(("name", "reason"), [("w.pth", "is damaged"), ("w.safetensors", "cannot be read")])
def test_damaged_files_are_refused(tmp_path: Path, name: str, reason: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}.* {reason}"):
        read_state_dict(tmp_path / name)


class Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("plain_pickle", [False, True])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, plain_pickle: bool) -> None:
    path, target = tmp_path / "evil.pth", tmp_path / "was-run"
    content = {"0.weight": Payload(target)}
    if plain_pickle:
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path)
    with pytest.raises(UserError, match="need code to load"):
        read_state_dict(path)
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (torch.zeros(3), "of type Tensor"),
        ({}, "but nothing"),
        ({"epoch": 3}, "'epoch' is an object of type int"),
        ([torch.zeros(1)], "of type list"),
    ],
)
def test_something_else_than_a_state_dict_is_refused(tmp_path: Path, content: object, named: str) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match=named):
        read_state_dict(tmp_path / "w.pth")
