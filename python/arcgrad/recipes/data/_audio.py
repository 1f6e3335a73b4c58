"""Recordings in files, through libsndfile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile  # type: ignore[import-untyped]

Floats = npt.NDArray[np.floating[Any]]


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
    except soundfile.LibsndfileError:
        return None
    return Properties(info.frames, info.samplerate, info.channels)


def read_audio(path: Path, rate: int) -> Floats:
    """The samples of a recording of one channel.

    Args:
        path: A file that libsndfile reads: FLAC, WAV, SPHERE that is not compressed, ...
        rate: The samples per second that it must have.

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
        raise ValueError(f"read_audio: {str(path)!r} must be there, but it is missing")
    try:
        samples, found = soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"read_audio: {str(path)!r} must be a recording, but reading it fails: {error}"
        ) from None
    if found != rate or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(
            f"read_audio: {str(path)!r} must have one channel and {rate} samples per second, but "
            f"it has {channels} and {found}; convert it, such as with ffmpeg -i in.wav -ac 1 -ar "
            f"{rate} out.wav"
        )
    return np.asarray(samples)
