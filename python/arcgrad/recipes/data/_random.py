"""Random numbers that depend on what they are for, and on nothing that ran before."""

from __future__ import annotations

import zlib

import numpy as np


def stream(purpose: str, *key: int) -> np.random.Generator:
    """A generator for a purpose and a key, such as the seed, the epoch and the index."""
    return np.random.default_rng([zlib.crc32(purpose.encode()), *key])


def check_seed(op: str, seed: int) -> None:
    """Raises unless a seed can be one."""
    if seed < 0:
        raise ValueError(f"{op}: the seed must not be negative, but it is {seed}")
