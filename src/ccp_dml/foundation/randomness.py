"""Independent random streams from one seed, so that nothing draws from a shared, hidden state."""

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose: `derive_seed(7, "pool", 3)` never collides with `derive_seed(7, "batch", 3)`."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator seeded for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
