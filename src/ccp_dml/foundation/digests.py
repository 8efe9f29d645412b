"""Short names for contents: two things with the same digest are the same, whatever they are called."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

BYTES = 16


def digest(*parts: str | bytes) -> str:
    """Digest texts or bytes in their order; where one ends and the next begins matters."""
    return _digest_of(parts)


def _digest_of(parts: Iterable[str | bytes | memoryview]) -> str:
    total = hashlib.blake2b(digest_size=BYTES)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "big"))
        total.update(content)
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """Digest a file's content, not its name."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=BYTES)).hexdigest()


def content_digest(content: bytes) -> str:
    """Digest bytes as `file_digest` does a file that holds them."""
    return hashlib.blake2b(content, digest_size=BYTES).hexdigest()


def tensor_digest(named: "Iterable[tuple[str, Tensor]]") -> str:
    """Digest tensors with their names, types and shapes, on whatever device and in whatever order.

    One after the other: a network may be large, and is not copied.
    """
    import torch  # takes seconds: commands that only read settings digest no tensors

    def parts() -> Iterator[str | memoryview]:
        for name, value in sorted(named, key=lambda item: item[0]):
            plain = value.detach().cpu().contiguous()
            yield f"{name} {plain.dtype} {tuple(plain.shape)}"
            yield plain.flatten().view(torch.uint8).numpy().data

    return _digest_of(parts())
