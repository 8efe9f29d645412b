"""Independent random streams from one seed, so that nothing draws from a shared, hidden state."""

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose: (7, "pool", 3) and (7, "batch", 3) give independent seeds."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Make a CPU generator seeded for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
