"""Checkpoints and weights: plain tensors and numbers, read without running code from them."""

import errno
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ccp_dml.errors import UserError, first_line
from ccp_dml.foundation.files import atomic
from ccp_dml.foundation.seals import (
    DamagedError,
    blank_seal,
    check_safetensors,
    check_torch_file,
    metadata_of,
    note_of,
    seal_safetensors,
    seal_torch_file,
)

NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


def save_checkpoint(path: Path, state: dict[str, Any], before: Path | None = None) -> None:
    """Save nested dictionaries of tensors, numbers and strings, sealed.

    What `path` held is kept as `before`, if that is given; a kill may leave it there alone.
    """
    try:
        with atomic(path) as scratch:
            torch.save(state, scratch)
            seal_torch_file(scratch)
            if before is not None and path.exists():
                os.replace(path, before)
    except (OSError, RuntimeError) as error:  # torch has no error of its own for a full disk
        raise cannot_write(path, error) from None


def load_checkpoint(path: Path, device: torch.device | str = "cpu", *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint without ever running code from it; raise a DamagedError where it is not what was written.

    If it is to be `mapped`, its tensors lie in the file until somebody copies them, whatever the `device`.
    """
    try:
        check_torch_file(path)
        state = torch.load(path, map_location="cpu" if mapped else device, weights_only=True, mmap=mapped)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist, so there is nothing to resume; start the run without --resume."
        ) from None
    except DamagedError:
        raise
    except Exception as error:
        raise DamagedError(
            f"{path} is not a readable checkpoint ({type(error).__name__}); start again in a new --out."
        ) from None
    if not isinstance(state, dict):
        raise DamagedError(f"{path} is not a readable checkpoint (it holds a {type(state).__name__}).")
    return state


def save_weights(path: Path, weights: dict[str, Tensor], note: str | None = None) -> None:
    """Save named tensors and, beside them, a note in words, sealed.

    Seal and note are one entry, because safetensors writes several in random order: equal files would differ.
    """
    tensors = {name: value.contiguous().cpu() for name, value in weights.items()}
    try:
        with atomic(path) as scratch:
            save_file(tensors, scratch, blank_seal(note))
            seal_safetensors(scratch)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: Exception) -> UserError:
    """Say what to do about a file that cannot be written: the remedy first, the words of a library last."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    if isinstance(error, OSError) and error.errno in NOT_ALLOWED:
        remedy = f"get the right to write to {path.parent}"
    else:
        remedy = "make room on the disk"
    return UserError(
        f"{path} cannot be written: {remedy}; what was there before is unharmed. (The message was: {said}.)"
    )


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors; raise a DamagedError where they are not what was written."""
    try:
        check_safetensors(path)
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as safetensors weights: {error}.") from None


def load_note(path: Path) -> str | None:
    """Read the note that was saved with the tensors, if any."""
    return note_of(metadata_of(path))


def random_states() -> dict[str, Tensor]:
    """Collect the states of torch's own generators, which dropout and the like draw from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
