"""Read recordings with libsndfile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile  # type: ignore[import-untyped]

Floats = npt.NDArray[np.floating[Any]]

# The number of samples to read at a time.
BLOCK = 1 << 20


class Properties(NamedTuple):
    """The number of samples of a recording, samples per second, and channels."""

    num_samples: int
    rate: int
    channels: int

    def __str__(self) -> str:
        return f"{self.num_samples} samples at {self.rate} Hz in {self.channels} channels"


def properties(path: Path) -> Properties | None:
    """The properties of a recording, or None if it cannot be read."""
    try:
        info = soundfile.info(path)
    except (RuntimeError, ValueError):
        return None
    return Properties(info.frames, info.samplerate, info.channels)


def read_audio(path: Path, rate: int) -> Floats:
    """The samples of a recording of one channel.

    Args:
        path: A file that libsndfile reads: FLAC, WAV, uncompressed SPHERE, ...
        rate: The required samples per second.

    Returns:
        The samples in [-1, 1].

    Raises:
        ValueError: If the file is missing, cannot be read, or has another rate or more channels.

    >>> import numpy as np, soundfile
    >>> from pathlib import Path
    >>> from arcgrad.recipes.data import read_audio
    >>> soundfile.write("beep.wav", np.zeros(800), 8000)
    >>> read_audio(Path("beep.wav"), 8000).shape
    (800,)
    """
    if not path.exists():
        raise ValueError(f"read_audio: {str(path)!r} must exist, but it is missing")
    try:
        with soundfile.SoundFile(path) as file:
            found = file.samplerate, file.channels
            blocks = list(_blocks(file)) if found == (rate, 1) else []
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"read_audio: {str(path)!r} must be a recording, but reading it fails: {error}"
        ) from None
    if found != (rate, 1):
        raise ValueError(
            f"read_audio: {str(path)!r} must have one channel and {rate} samples per second, but "
            f"it has {found[1]} and {found[0]}; convert it, for example with ffmpeg -i in.wav "
            f"-ac 1 -ar {rate} out.wav"
        )
    return np.concatenate(blocks) if blocks else np.empty(0, np.float32)


def _blocks(file: Any) -> Iterator[Floats]:
    """The samples of a file in blocks, since its header may state any number of samples."""
    while True:
        block = file.read(BLOCK, dtype="float32")
        if len(block):
            yield block
        if len(block) < BLOCK:
            return
