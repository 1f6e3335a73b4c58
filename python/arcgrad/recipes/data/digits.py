"""Real speech: strings of spoken digits, spelled in letters.

3,000 recordings of English digits by 6 speakers, 8 kHz: the Free Spoken Digit Dataset, CC BY-SA
4.0. The recordings are in the repository (``data/digits``), not in the package.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arcgrad import _files

from ._audio import Floats, read_audio
from ._random import check_seed, stream
from .examples import SPLITS, Splits
from .speech import LogMel, SpecAugment, SpeechDataset
from .tokenizers import BOUNDARY, Letters

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
AUDIO, INDEX = "fsdd.flac", "fsdd_index.npz"

# The recordings of each split; every split has all speakers.
RECORDINGS = {"train": (0, 2400), "validation": (2400, 2700), "test": (2700, 3000)}
MIN_DIGITS, MAX_DIGITS = 2, 6

#: The masks of training strings, which are short.
AUGMENTATION = SpecAugment(max_frequencies=15, max_frames=20)


class DigitStrings(SpeechDataset):
    """Strings of concatenated recordings.

    Args:
        samples: The samples of all recordings, in [-1, 1].
        begins: The start of each recording, and the end of the last one.
        strings: The recordings of each example.
        args: As for :class:`SpeechDataset`.
        kwargs: As for :class:`SpeechDataset`.
    """

    def __init__(
        self,
        samples: Floats,
        begins: npt.NDArray[np.int64],
        strings: Sequence[npt.NDArray[np.int64]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._samples, self._begins, self._strings = samples, begins, list(strings)

    def samples(self, index: int) -> Floats:
        """Return the original samples of an example, in [-1, 1]."""
        ranges = [(self._begins[r], self._begins[r + 1]) for r in self._strings[index]]
        return np.concatenate([self._samples[begin:end] for begin, end in ranges])


def find(data_path: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder with the recordings.

    Args:
        data_path: The folder itself. By default ``data/digits`` of the checkout of this file, or of
            the working directory.

    Raises:
        ValueError: If the recordings are missing.
    """
    folders = [Path(__file__).parents[4] / "data/digits", Path("data/digits").absolute()]
    if data_path is not None:
        folders = [Path(data_path)]
    for folder in folders:
        if (folder / AUDIO).is_file() and (folder / INDEX).is_file():
            return folder
    searched = " and ".join(repr(str(folder)) for folder in dict.fromkeys(folders))
    raise ValueError(
        f"digits.find: a folder must have {AUDIO} and {INDEX}, but {searched} do not; they are in "
        "data/digits of arcgrad's repository: pass that as data_path"
    )


def _read_index(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of samples and the digit of each recording."""
    try:
        arrays = _files.parse_arrays(path.read_bytes())
        lengths, numbers = (arrays[name].astype(np.int64) for name in ("lengths", "digits"))
        if lengths.ndim != 1 or lengths.shape != numbers.shape or lengths.min(initial=1) < 1:
            raise ValueError("its lengths are not one positive number for each digit")
        if not 0 <= numbers.min(initial=0) <= numbers.max(initial=0) < len(NAMES):
            raise ValueError("there are numbers that are not digits")
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"digits.load: {str(path)!r} must have the lengths and digits of recordings, but "
            f"{error}"
        ) from None
    return lengths, numbers


def load(
    data_path: str | os.PathLike[str] | None = None,
    *,
    train: int = 2000,
    validation: int = 300,
    test: int = 300,
    features: LogMel | None = None,
    augmentation: SpecAugment | None = AUGMENTATION,
    seed: int = 0,
) -> Splits[DigitStrings]:
    """Strings of 2 to 6 spoken digits such as "three one nine".

    The strings of each split are drawn at random from its recordings: 2400 for training, 300 for
    validation and 300 for the test.

    Args:
        data_path: The folder with the recordings; None to search it with :func:`find`.
        train: The number of training strings.
        validation: The number of validation strings.
        test: The number of test strings.
        features: The preprocessing of samples; by default ``LogMel(rate=8000)``.
        augmentation: Masks for training examples, or None.
        seed: The seed of strings and masks.

    Returns:
        The data sets, with letters as tokens.

    Raises:
        ValueError: If the recordings are missing or damaged, a size is not positive, or the
            features are for another rate.

    >>> from arcgrad.recipes.data import digits
    >>> strings = digits.load(train=100, validation=10, test=10)  # doctest: +SKIP
    >>> strings.test[0].text  # doctest: +SKIP
    'five eight two'
    """
    check_seed("digits.load", seed)
    sizes = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        if size < 1:
            raise ValueError(f"digits.load: {split} must be at least 1, but it is {size}")
    features = LogMel(rate=RATE) if features is None else features
    if features.rate != RATE:
        raise ValueError(
            f"digits.load: features must be for {RATE} samples per second, but they are for "
            f"{features.rate}"
        )
    folder = find(data_path)
    samples = read_audio(folder / AUDIO, RATE)
    num_samples, numbers = _read_index(folder / INDEX)
    begins = np.concatenate([[0], np.cumsum(num_samples, dtype=np.int64)])
    if len(samples) != begins[-1] or len(numbers) != RECORDINGS["test"][1]:
        raise ValueError(
            f"digits.load: {AUDIO} must be the recordings of {INDEX}, but it has {len(samples)} "
            f"samples for {begins[-1]} of {len(numbers)} recordings"
        )

    parts = []
    letters = Letters((BOUNDARY, *sorted(set("".join(NAMES)))))
    for number, split in enumerate(SPLITS):
        strings = []
        for index_ in range(sizes[split]):
            rng = stream("digits", seed, number, index_)
            count = rng.integers(MIN_DIGITS, MAX_DIGITS, endpoint=True)
            strings.append(rng.integers(*RECORDINGS[split], count))
        lengths = [int((begins[string + 1] - begins[string]).sum()) for string in strings]
        parts.append(
            DigitStrings(
                samples,
                begins,
                strings,
                [f"{split}-string-{index_}" for index_ in range(sizes[split])],
                [" ".join(NAMES[digit] for digit in numbers[string]) for string in strings],
                [features.num_frames(length) for length in lengths],
                letters,
                features=features,
                augmentation=augmentation if split == "train" else None,
                split=split,
                seed=seed,
            )
        )
    return Splits(*parts)
