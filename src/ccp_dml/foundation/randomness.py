"""Independent random streams from one seed, so that nothing draws from a shared, hidden state."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose: (7, "pool", 3) and (7, "batch", 3) give independent seeds."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seeds_of_rows(count: int, seed: int, *purpose: str | int) -> Tensor:
    """Draw one seed (count,) per row of something, a batch for instance: row i's is the same for whoever asks."""
    return torch.randint(2**63 - 1, (count,), generator=generator(seed, *purpose))


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Make a CPU generator seeded for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def drawing_alike(device: torch.device, *purpose: str | int) -> Iterator[None]:
    """Let all that draws from torch's hidden state draw the same in every process; afterwards it is as it was."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(0, *purpose))
        yield
