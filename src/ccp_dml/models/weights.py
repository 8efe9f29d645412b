"""Load weights from a local file, without running anything in it; refuse those of another network."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ccp_dml.errors import UserError

# Under these keys training scripts keep the network beside optimiser states and the like.
NESTED_UNDER = ("state_dict", "model", "model_state_dict")

# How names begin in the file of a run (of a timm network, and of one of ours), and where a network was saved together
# with what wrapped it (DataParallel, torch.compile).
PREFIXES = ("backbone.network.", "backbone.", "module.", "_orig_mod.")


def load_weights(network: nn.Module, path: Path, architecture: str, classifier_keys: Sequence[str] = ()) -> None:
    """Fill `network` from a file of exactly its architecture.

    Args:
        network: takes the weights; nothing is changed if the file does not fit.
        path: `.safetensors`, or a state dict saved by `torch.save`; of a run (`best.safetensors`), which holds a whole
            embedder, the backbone is taken.
        architecture: the network's name, for messages.
        classifier_keys: how the names of entries begin that belong to a published classifier, which is left out.
    """
    expected = network.state_dict()
    given = {
        name: value
        for name, value in without_prefix(read_state_dict(path), expected).items()
        if not name.startswith(tuple(classifier_keys))
    }
    # Files written before PyTorch counted batches lack the counters; nothing here depends on them.
    missing = [name for name in expected if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in expected]
    shared = [name for name in given if name in expected]
    for name in shared:
        # Weights converted from Caffe may keep vectors as one row.
        if given[name].shape == (1, *expected[name].shape) and expected[name].ndim == 1:
            given[name] = given[name][0]
    misshapen = [name for name in shared if given[name].shape != expected[name].shape]
    complaints = []
    if missing:
        complaints.append(f"{len(missing)} of {len(expected)} entries are missing ({_first_few(missing)})")
    if unexpected:
        complaints.append(f"{len(unexpected)} are unexpected ({_first_few(unexpected)})")
    if misshapen:
        name = misshapen[0]
        complaints.append(
            f"{len(misshapen)} have another shape (first {name}: {tuple(given[name].shape)} instead of "
            f"{tuple(expected[name].shape)})"
        )
    if complaints:
        raise UserError(
            f"{path} does not hold the weights of {architecture}: {'; '.join(complaints)}; "
            f"give `weights` a file of {architecture}, or choose the backbone that it was saved from"
        )
    network.load_state_dict(given, strict=False)


def without_prefix(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Take the backbone out of the entries of a whole embedder, or of a wrapper; its own entries stay as they are."""
    if given.keys().isdisjoint(expected):
        for prefix in PREFIXES:
            inner = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
            if inner:
                return without_prefix(inner, expected)  # a wrapper may have wrapped another
    return given


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name. A pickle that would run code is refused."""
    if not path.is_file():
        raise UserError(f"there is no weights file {path}: set `weights`=FILE to where it is now")
    try:
        if path.suffix == ".safetensors":
            content: object = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"the weights file {path} cannot be read ({error}): repair it, or set `weights`=FILE to another copy"
        ) from error
    except Exception as error:  # a damaged pickle can fail anywhere in the unpickler
        raise UserError(
            f"{path} is no plain state dict: it is damaged, of another format, or holds objects that need code to load "
            "(refused, because such a file could run anything); save the network's state_dict() and pass that"
        ) from error
    for key in NESTED_UNDER:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{path} holds no state dict but {_describe(content)}: save the network's state_dict()")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise UserError(
                f"{path} holds no state dict: its entry {name!r} is {_describe(value)}, not a tensor; "
                "save the network's state_dict()"
            )
    return dict(content)


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _describe(value: object) -> str:
    return "nothing" if isinstance(value, Mapping) and not value else f"an object of type {type(value).__name__}"
