"""Read recordings with libsndfile."""

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
        samples, found = soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"read_audio: {str(path)!r} must be a recording, but reading it fails: {error}"
        ) from None
    if found != rate or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(
            f"read_audio: {str(path)!r} must have one channel and {rate} samples per second, but "
            f"it has {channels} and {found}; convert it, for example with ffmpeg -i in.wav -ac 1 "
            f"-ar {rate} out.wav"
        )
    return np.asarray(samples)
