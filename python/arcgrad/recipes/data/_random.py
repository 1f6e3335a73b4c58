"""Random generators that depend on their purpose and key only, not on earlier draws."""

from __future__ import annotations

import zlib

import numpy as np


def stream(purpose: str, *key: int) -> np.random.Generator:
    """Return a generator for a purpose and a key, such as the seed, the epoch and the index."""
    return np.random.default_rng([zlib.crc32(purpose.encode()), *key])


def check_seed(op: str, seed: int) -> None:
    """Raise if a seed is negative."""
    if seed < 0:
        raise ValueError(f"{op}: the seed must not be negative, but it is {seed}")
