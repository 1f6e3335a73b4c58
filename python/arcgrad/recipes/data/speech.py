"""Speech: log-mel features, SpecAugment, and data sets of recordings."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from . import manifests
from ._audio import Floats, properties, read_audio
from .examples import SPLITS, Dataset, Splits
from .manifests import PathLike, Problems, Utterance
from .tokenizers import Letters

# Added to the energies of filters before the logarithm; samples lie in [-1, 1].
FLOOR = 1e-6


def mel(frequency: float) -> float:
    """A frequency in Hz on the mel scale, by the formula of HTK."""
    return 2595.0 * math.log10(1.0 + frequency / 700.0)


def hertz(mels: Floats) -> Floats:
    """The frequencies in Hz of points on the mel scale."""
    return np.asarray(700.0 * (10.0 ** (mels / 2595.0) - 1.0))


@dataclass(frozen=True)
class LogMel:
    """Log-mel energies, normalised by example.

    Frames are centred at multiples of the hop, with zero padding at both ends, so there are
    ``1 + samples // hop`` frames. The power spectrum of each frame (Hann window) is summed with
    triangular filters, whose centres are equally spaced on the mel scale up to half the rate. The
    features of an example have mean 0 and standard deviation 1 over all filters and frames.

    Args:
        rate: The samples per second.
        num_filters: The number of bands.
        window: The length of a frame in seconds.
        hop: The distance between adjacent frames in seconds.
        fft_size: The number of points of the Fourier transform, at least a window. By default the
            smallest power of two for which the lowest filters are at least one point apart, so that
            no filter is empty.
        normalize: Whether to normalise examples.

    Raises:
        ValueError: If a number is not positive, or the transform is shorter than a window.

    >>> import numpy as np
    >>> from arcgrad.recipes.data import LogMel
    >>> features = LogMel(rate=16000)
    >>> features(np.zeros(16000, np.float32)).shape
    torch.Size([80, 101])
    """

    rate: int = 16000
    num_filters: int = 80
    window: float = 0.020
    hop: float = 0.010
    fft_size: int | None = None
    normalize: bool = True

    def __post_init__(self) -> None:
        if min(self.rate, self.num_filters, self.window_size, self.hop_size) < 1:
            raise ValueError(
                "LogMel: the rate, the number of filters and the samples of a window and a hop "
                f"must be positive, but they are {self.rate}, {self.num_filters}, "
                f"{self.window_size} and {self.hop_size}"
            )
        if self.fft_size is not None and self.fft_size < self.window_size:
            raise ValueError(
                f"LogMel: the transform must cover a window of {self.window_size} points, but it "
                f"has {self.fft_size}"
            )

    @property
    def window_size(self) -> int:
        """The samples of a frame."""
        return round(self.window * self.rate)

    @property
    def hop_size(self) -> int:
        """The samples from one frame to the next."""
        return round(self.hop * self.rate)

    def num_frames(self, num_samples: int) -> int:
        """The number of frames of a recording."""
        return 1 + num_samples // self.hop_size

    @functools.cached_property
    def _edges(self) -> Floats:
        """The band edges: filter i begins, peaks and ends at edge i, i + 1 and i + 2."""
        return hertz(np.linspace(0.0, mel(self.rate / 2), self.num_filters + 2))

    @functools.cached_property
    def _num_points(self) -> int:
        if self.fft_size is not None:
            return self.fft_size
        least = max(self.window_size, self.rate / float(self._edges[1] - self._edges[0]))
        return 1 << math.ceil(math.log2(least))

    @functools.cached_property
    def filters(self) -> Tensor:
        """The weight of each point of the spectrum in each filter, ``[filters, points]``."""
        points = np.arange(self._num_points // 2 + 1) * (self.rate / self._num_points)
        begin, peak, end = (self._edges[i : i + self.num_filters, None] for i in range(3))
        rise, fall = (points - begin) / (peak - begin), (end - points) / (end - peak)
        return torch.from_numpy(np.maximum(0.0, np.minimum(rise, fall)).astype(np.float32))

    def __call__(self, samples: Floats) -> Tensor:
        """The features ``[filters, frames]`` of a recording.

        Args:
            samples: At least one sample, in [-1, 1].

        Raises:
            ValueError: If there are no samples, or more than one channel.
        """
        if samples.ndim != 1 or samples.size == 0:
            raise ValueError(
                "LogMel: a recording must have one channel and a sample, but its shape is "
                f"{samples.shape}"
            )
        spectrum = torch.stft(
            torch.from_numpy(np.ascontiguousarray(samples, np.float32)),
            n_fft=self._num_points,
            hop_length=self.hop_size,
            win_length=self.window_size,
            window=torch.hann_window(self.window_size),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        energies = torch.view_as_real(spectrum).square().sum(-1)
        features = torch.log(self.filters @ energies + FLOOR)
        if not self.normalize:
            return features
        # Silence has deviation 0, and stays 0.
        std, mean = torch.std_mean(features, correction=0)
        return (features - mean) / std.clamp_min(1e-5)


@dataclass(frozen=True)
class SpecAugment:
    """SpecAugment: random masks in frequency and time, by default the LD policy without warping.

    Masked values are 0, the mean of normalised features.

    Args:
        num_frequency_masks: The number of masks in frequency.
        max_frequencies: The maximum number of filters of a mask.
        num_time_masks: The number of masks in time.
        max_frames: The maximum number of frames of a mask.
        max_share: The maximum fraction of the recording that a mask covers.

    Raises:
        ValueError: If a number is negative, or the fraction is above 1.

    >>> import numpy as np, torch
    >>> from arcgrad.recipes.data import SpecAugment
    >>> masked = SpecAugment()(torch.ones(80, 400), np.random.default_rng(1))
    >>> masked.shape, bool((masked == 0).any())
    (torch.Size([80, 400]), True)
    """

    num_frequency_masks: int = 2
    max_frequencies: int = 27
    num_time_masks: int = 2
    max_frames: int = 100
    max_share: float = 1.0

    def __post_init__(self) -> None:
        counts = (
            *(self.num_frequency_masks, self.max_frequencies),
            *(self.num_time_masks, self.max_frames),
        )
        if min(counts) < 0 or not 0 <= self.max_share <= 1:
            raise ValueError(
                "SpecAugment: numbers must not be negative and max_share at most 1, but they are "
                f"{self}"
            )

    def __call__(self, features: Tensor, rng: np.random.Generator) -> Tensor:
        """Return a masked copy of features ``[filters, frames]``."""
        masked = features.clone()
        filters, frames = features.shape
        for _ in range(self.num_frequency_masks):
            first, end = _interval(rng, min(self.max_frequencies, filters), filters)
            masked[first:end] = 0.0
        most = min(self.max_frames, int(self.max_share * frames))
        for _ in range(self.num_time_masks):
            first, end = _interval(rng, most, frames)
            masked[:, first:end] = 0.0
        return masked


def _interval(rng: np.random.Generator, most: int, total: int) -> tuple[int, int]:
    """Return a random interval in ``[0, total)`` of at most ``most`` elements."""
    size = int(rng.integers(0, most, endpoint=True))
    first = int(rng.integers(0, total - size, endpoint=True))
    return first, first + size


class SpeechDataset(Dataset):
    """Recordings with texts; the input is ``[filters, frames]``.

    Args:
        args: As for :class:`Dataset`.
        features: The preprocessing of samples.
        augmentation: Random masks, or None.
        kwargs: As for :class:`Dataset`.
    """

    def __init__(
        self,
        *args: Any,
        features: LogMel,
        augmentation: SpecAugment | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.features, self.augmentation = features, augmentation

    @abc.abstractmethod
    def samples(self, index: int) -> Floats:
        """Return the original samples of an example, in [-1, 1]."""

    def _input(self, index: int, rng: np.random.Generator) -> Tensor:
        features = self.features(self.samples(index))
        return features if self.augmentation is None else self.augmentation(features, rng)


class RecordingsInFiles(SpeechDataset):
    """Recordings in files, which are read on demand."""

    def __init__(self, paths: Sequence[Path], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paths = list(paths)

    def samples(self, index: int) -> Floats:
        """Return the original samples of an example, in [-1, 1]."""
        return read_audio(self._paths[index], self.features.rate)


def read_utterance(
    name: str, text: str, audio: Path, folder: Path, rate: int, shown: str, problems: Problems
) -> Iterator[Utterance]:
    """Return the row of a recording; or none, with a problem under the name to show."""
    found = properties(audio)
    if found is None:
        problems.add("unreadable recordings", shown)
    elif (found.rate, found.channels) != (rate, 1) or found.num_samples == 0:
        problems.add(f"recordings that are not {rate} Hz mono", f"{shown}: {found}")
    else:
        fields = name, text, manifests.relative(audio, folder), found.num_samples / rate
        yield from manifests.new_rows(Utterance, problems, *fields)


def load_recordings(
    op: str,
    data_path: PathLike,
    parts: Sequence[str | Sequence[str]],
    *,
    features: LogMel,
    augmentation: SpecAugment | None,
    limit: int | None,
    limits: Mapping[str, int],
    damaged: Literal["stop", "skip"],
    seed: int,
) -> Splits[RecordingsInFiles]:
    """Load the data sets of the manifests of parts, with the letters of all texts as tokens."""
    folder, rows, left_out = manifests.load_rows(
        *(op, data_path, [(each,) if isinstance(each, str) else each for each in parts]),
        Utterance,
        limits=[limits.get(split, limit) for split in SPLITS],
        damaged=damaged,
    )
    letters = Letters.from_texts(row.text for part in rows for row in part)
    sets = [
        RecordingsInFiles(
            [folder / row.audio for row in part],
            [row.id for row in part],
            [row.text for row in part],
            [features.num_frames(round(row.duration * features.rate)) for row in part],
            letters,
            features=features,
            augmentation=augmentation if split == "train" else None,
            split=split,
            seed=seed,
        )
        for split, part in zip(SPLITS, rows, strict=True)
    ]
    return Splits(*sets, left_out=left_out)


def decode_utterance(row: Utterance, path: Path, rate: int) -> None:
    """Decode a recording; raise if it is damaged or shorter than its header states."""
    samples = read_audio(path, rate)
    if len(samples) != round(row.duration * rate):
        raise ValueError("the recording is shorter than its header states")
