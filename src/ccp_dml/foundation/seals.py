"""Seals: a digest inside a file, by which any bit that has changed since the file was written is noticed.

A torch file carries its seal behind its last byte, where torch does not look; a safetensors file carries it as its only
metadata. Files of versions that wrote no seals are told apart from sealed ones whose seal is damaged.
"""

import hashlib
from pathlib import Path
from typing import Any, BinaryIO

from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import BYTES
from ccp_dml.foundation.files import from_json

HEX = 2 * BYTES
BLANK = b"0" * HEX

TAIL = b"\nccp-dml sealed "
TAIL_BYTES = len(TAIL) + HEX + 1
ZIP_END, ZIP_END_BYTES = b"PK\x05\x06", 22  # how a torch file ends that has no seal

SEAL = "sealed"  # the one key of the metadata: its value is the seal, and behind it the note
NOTE = "note"  # the one key of the metadata of unsealed files
MARK = f'"{SEAL}":"'.encode()
LARGEST_HEADER = 100_000_000  # bytes, as safetensors itself has it


class DamagedError(UserError):
    """A file is not what was written: some of its bits have changed."""


def seal_torch_file(path: Path) -> None:
    """Append a seal to a file that `torch.save` has just written."""
    with path.open("r+b") as file:
        seal = _digest(file, path.stat().st_size)
        file.write(TAIL + seal + b"\n")


def check_torch_file(path: Path) -> bool:
    """Compare a torch file with its seal, and tell whether it has one; raise a DamagedError where they differ."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read(TAIL_BYTES)
        if tail[-ZIP_END_BYTES:].startswith(ZIP_END):
            return False
        file.seek(0)
        whole = tail[: len(TAIL)] == TAIL and tail[-1:] == b"\n"
        if not whole or tail[len(TAIL) : -1] != _digest(file, size - TAIL_BYTES):
            raise DamagedError(f"{path} is not a readable checkpoint: its bits are not those that were written.")
    return True


def seal_safetensors(path: Path) -> None:
    """Fill in the seal of a safetensors file that was written with the metadata of `blank_seal`."""
    with path.open("r+b") as file:
        place = _place_of_seal(file, path.stat().st_size)
        assert place is not None, "the metadata has room for a seal"
        seal = _digest_with_blank(file, place, path.stat().st_size)
        file.seek(place)
        file.write(seal)


def check_safetensors(path: Path) -> bool:
    """Compare a safetensors file with its seal, and tell whether it has one; raise a DamagedError where they differ."""
    size = path.stat().st_size
    with path.open("rb") as file:
        place = _place_of_seal(file, size)
        if place is None:
            if metadata_of(path).keys() - {NOTE}:
                raise DamagedError(f"{path} is damaged: the place of its checksum cannot be read.")
            return False
        file.seek(place)
        if file.read(HEX) != _digest_with_blank(file, place, size):
            raise DamagedError(f"{path} is damaged: its bits are not those that were written.")
    return True


def blank_seal(note: str | None) -> dict[str, str]:
    """Make the metadata that a safetensors file is written with before it is sealed."""
    return {SEAL: BLANK.decode() + (note or "")}


def note_of(metadata: dict[str, Any]) -> str | None:
    """Look up the note in a safetensors file's metadata, sealed or not."""
    return str(metadata[SEAL])[HEX:] or None if SEAL in metadata else metadata.get(NOTE)


def metadata_of(path: Path) -> dict[str, Any]:
    """Read the metadata of a safetensors file; raise a DamagedError where its header cannot be read."""
    with path.open("rb") as file:
        header = _header(file, path.stat().st_size)
    try:
        metadata = from_json(header or b"").get("__metadata__") or {}
        return dict(metadata)
    except (ValueError, AttributeError, TypeError):
        raise DamagedError(f"{path} is no safetensors file, or its header is damaged.") from None


def _header(file: BinaryIO, size: int) -> bytes | None:
    length = int.from_bytes(file.read(8), "little")
    return file.read(length) if length <= min(size - 8, LARGEST_HEADER) else None


def _place_of_seal(file: BinaryIO, size: int) -> int | None:
    """Find where the seal's digits begin in a safetensors file; None where there are none."""
    file.seek(0)
    header = _header(file, size) or b""
    place = header.find(MARK)
    return None if place < 0 else 8 + place + len(MARK)


def _digest_with_blank(file: BinaryIO, place: int, size: int) -> bytes:
    """Digest a file as it was before its seal was filled in at `place`."""
    file.seek(0)
    head = file.read(place)
    file.seek(place + HEX)
    return _digest(file, size - place - HEX, head + BLANK)


def _digest(file: BinaryIO, count: int, before: bytes = b"") -> bytes:
    """Digest `before` and the next `count` bytes of `file`, which then stands behind them."""
    total = hashlib.blake2b(before, digest_size=BYTES)
    while count > 0 and (block := file.read(min(count, 1 << 20))):
        total.update(block)
        count -= len(block)
    return total.hexdigest().encode()
