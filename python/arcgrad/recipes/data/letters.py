"""Real handwriting, shipped with the package: words, and lines of running text.

6,877 copies of 55 words by about 150 writers, as 16 x 8 bitmaps of letters; source and licence are
in ``ocr_letters.txt``. The copies of a word are ordered by writer. Training, validation and test
data are intervals of these copies, so that they have few writers in common.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._random import check_seed, stream
from .examples import SPLITS, Split, Splits
from .images import WHITE, ImageAugmentation, ImagesInMemory, Pixels, scaled_width
from .tokenizers import BOUNDARY, Letters

Image = npt.NDArray[np.uint8]
# The ids, texts and images of a data set.
Lines = tuple[list[str], list[str], list[Image]]
Ints = npt.NDArray[np.int64]

ALPHABET = string.ascii_lowercase
HEIGHT, WIDTH = 16, 8

# The interval of each split, as fractions of the copies of a word and of the text.
BEGIN = {"train": 0.0, "validation": 0.8, "test": 0.9}
END = {"train": 0.8, "validation": 0.9, "test": 1.0}

# Limits of lines: words, letters with spaces, and white columns between letters and words.
MIN_WORDS, MAX_WORDS, MAX_LETTERS = 3, 5, 32
LETTER_GAPS, WORD_GAPS = (0, 2), (5, 9)
# The letters of a line come from copies within this fraction of all copies, at least NEAREST.
ONE_HAND, NEAREST = 0.01, 4

LINES = {"train": 4000, "validation": 500, "test": 500}

# Mean and standard deviation of the pixels of training images, white being 1.
NORMAL = {"words": (0.780, 0.414), "lines": (0.810, 0.393)}

#: The augmentation of training images; it is weak, since the images are small.
AUGMENTATION = ImageAugmentation(jitter=1, stretch=0.2, rotation=1.0, brightness=0.3, contrast=0.3)


@dataclass(frozen=True)
class Words:
    """The words of the corpus.

    Attributes:
        texts: The text of each word.
        glyphs: The concatenated letters, ``[letters, 16, 8]``; ink is 1.
        letters: The index of each letter in the alphabet.
        begins: The index of the first letter of each word, and the number of letters.
        positions: The relative position of a word among its copies, in [0, 1).
    """

    texts: list[str]
    glyphs: npt.NDArray[np.uint8]
    letters: npt.NDArray[np.uint8]
    begins: Ints
    positions: npt.NDArray[np.float64]

    def of(self, split: Split) -> Ints:
        """Return the words of a split."""
        inside = (self.positions >= BEGIN[split]) & (self.positions < END[split])
        return np.flatnonzero(inside)


@functools.cache
def read_words() -> Words:
    """Read the words of the corpus, which are part of the package.

    >>> from arcgrad.recipes.data import letters
    >>> words = letters.read_words()
    >>> len(words.texts), len(words.glyphs), [len(words.of(split)) for split in letters.SPLITS]
    (6877, 52152, [5521, 690, 666])
    """
    with np.load(Path(__file__).with_name("ocr_letters.npz")) as arrays:
        glyphs = np.unpackbits(arrays["pixels"], axis=1).reshape(-1, HEIGHT, WIDTH)
        letters = arrays["letters"]
        begins = np.concatenate([[0], np.cumsum(arrays["word_lengths"], dtype=np.int64)])
    spelled = "".join(ALPHABET[letter] for letter in letters)
    texts = [spelled[begin:end] for begin, end in itertools.pairwise(begins)]
    copies: dict[str, list[int]] = {}
    for word, text in enumerate(texts):
        copies.setdefault(text, []).append(word)
    positions = np.zeros(len(texts))
    for words in copies.values():
        positions[words] = np.arange(len(words)) / len(words)
    return Words(texts, glyphs, letters, begins, positions)


@functools.cache
def running_text() -> str:
    """Return the text for lines: Python's ``help()`` on its topics, without repeated paragraphs.

    It depends on the version of Python, and so do the lines.

    >>> from arcgrad.recipes.data import letters
    >>> "a class definition" in letters.running_text()
    True
    """
    from pydoc_data.topics import topics

    paragraphs = (clean(part) for topic in topics.values() for part in topic.split("\n\n"))
    # Topics quote one another, but the text of training and test must be disjoint.
    return " ".join(dict.fromkeys(part for part in paragraphs if part))


def clean(text: str) -> str:
    """Return a text in the letters a to z, with single spaces.

    >>> from arcgrad.recipes.data import letters
    >>> letters.clean("It's 5 o'clock -- TIME!")
    'its oclock time'
    """
    return " ".join(re.sub("[^a-z]+", " ", re.sub("['\u2019]", "", text.lower())).split())


def load(
    task: Literal["words", "lines"] = "lines",
    *,
    train: int | None = None,
    validation: int | None = None,
    test: int | None = None,
    text: str | None = None,
    augmentation: ImageAugmentation | None = AUGMENTATION,
    height: int = HEIGHT,
    normalize: Literal["corpus", "image"] = "corpus",
    single_words: int = 0,
    seed: int = 0,
) -> Splits[ImagesInMemory]:
    """Handwritten words, or lines of running text written with the letters of these words.

    A line has 3 to 5 words and at most 32 letters and spaces. Its letters are copies at adjacent
    positions, so that a line looks like the hand of one writer. Letters and text of training,
    validation and test lines are disjoint.

    Args:
        task: ``"words"`` or ``"lines"``.
        train: The number of training examples; by default all words, or 4000 lines. The number of
            lines is not limited.
        validation: The number of validation examples; by default all words, or 500 lines.
        test: The number of test examples; by default all words, or 500 lines.
        text: The text of lines; by default :func:`running_text`. Only letters are used, in lower
            case.
        augmentation: The augmentation of training images, or None.
        height: The height to which images are scaled.
        normalize: Whether images are normalised with the mean and standard deviation of the corpus,
            or each with its own.
        single_words: The number of epochs at the start in which a training line has one word.
        seed: The seed of lines, of the choice of words, and of the augmentation.

    Returns:
        The data sets, with letters as tokens.

    Raises:
        ValueError: If the task or a size is impossible, or the text is too short.

    >>> from arcgrad.recipes.data import letters
    >>> lines = letters.load("lines", train=100, validation=10, test=10, seed=1)
    >>> example = lines.test[0]
    >>> example.input.shape == (16, example.length)
    True
    >>> lines.test.tokenizer.decode(example.target.tolist()) == example.text
    True
    """
    if task not in ("words", "lines"):
        raise ValueError(f"letters.load: the task must be 'words' or 'lines', but it is {task!r}")
    check_seed("letters.load", seed)
    sizes = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"letters.load: {split} must be at least 1, but it is {size}")
    if single_words < 0 or (single_words and task == "words"):
        raise ValueError(
            "letters.load: single_words must be a number of epochs with lines, but it is "
            f"{single_words} and the task is {task!r}"
        )
    letters = Letters(tuple(ALPHABET if task == "words" else BOUNDARY + ALPHABET))
    said = running_text() if text is None else clean(text)

    def made(split: Split, lines: Lines) -> ImagesInMemory:
        ids, texts, images = lines
        return ImagesInMemory(
            images,
            ids,
            texts,
            [scaled_width(image.shape[1], HEIGHT, height) for image in images],
            letters,
            pixels=pixels(task, height, normalize),
            augmentation=augmentation if split == "train" else None,
            split=split,
            seed=seed,
        )

    parts = []
    for split in SPLITS:
        size = sizes[split]
        if task == "words":
            parts.append(made(split, _words(split, size, seed)))
            continue
        number = LINES[split] if size is None else size
        lines = made(split, _lines(split, number, said, seed))
        if split == "train" and single_words:
            lines.start_with(
                made(split, _lines(split, number, said, seed, num_words=(1, 1))), single_words
            )
        parts.append(lines)
    return Splits(*parts)


def pixels(
    task: Literal["words", "lines"],
    height: int = HEIGHT,
    normalize: Literal["corpus", "image"] = "corpus",
) -> Pixels:
    """Return the preprocessing of the images of a task.

    >>> from arcgrad.recipes.data import letters
    >>> letters.pixels("lines")
    Pixels(height=16, mean=0.81, std=0.393)
    """
    return Pixels(height, *(NORMAL[task] if normalize == "corpus" else ()))


def _image(columns: Sequence[npt.NDArray[np.uint8]]) -> Image:
    """Join columns of ink to a grey image."""
    return np.asarray(WHITE * (1 - np.hstack(columns)), np.uint8)


def _words(split: Split, size: int | None, seed: int) -> Lines:
    """The ids, texts and images of words of a split."""
    words = read_words()
    chosen = words.of(split)
    if size is not None:
        if size > len(chosen):
            raise ValueError(
                f"letters.load: {split} must be at most {len(chosen)} words, but it is {size}"
            )
        rng = stream("letters words", seed, SPLITS.index(split))
        chosen = np.sort(rng.choice(chosen, size, replace=False))
    ranges = [(words.begins[word], words.begins[word + 1]) for word in chosen]
    images = [_image(list(words.glyphs[begin:end])) for begin, end in ranges]
    return [f"word-{word}" for word in chosen], [words.texts[word] for word in chosen], images


class _Pool:
    """The copies of each letter in a split, sorted by position."""

    def __init__(self, split: Split) -> None:
        words = read_words()
        self._begin, self._end = BEGIN[split], END[split]
        positions = np.repeat(words.positions, np.diff(words.begins))
        inside = (positions >= self._begin) & (positions < self._end)
        glyphs = np.flatnonzero(inside)
        glyphs = glyphs[np.argsort(positions[glyphs], kind="stable")]
        self._glyphs, self._positions = [], []
        for letter in range(len(ALPHABET)):
            copies = glyphs[words.letters[glyphs] == letter]
            self._glyphs.append(copies)
            self._positions.append(positions[copies])
        self._ink = words.glyphs

    def write(self, text: str, rng: np.random.Generator) -> Image:
        """Return an image of a text in one hand."""
        hand = rng.uniform(self._begin, self._end)
        blank = np.zeros((HEIGHT, max(WORD_GAPS)), np.uint8)
        columns: list[npt.NDArray[np.uint8]] = []
        after_letter = False
        for letter in text:
            if letter == " ":
                columns.append(blank[:, : rng.integers(*WORD_GAPS, endpoint=True)])
                after_letter = False
                continue
            if after_letter:
                columns.append(blank[:, : rng.integers(*LETTER_GAPS, endpoint=True)])
            columns.append(self._ink_of(ALPHABET.index(letter), hand, rng))
            after_letter = True
        return _image(columns)

    def _ink_of(self, letter: int, hand: float, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        """Return a copy of a letter near a position, cropped to its columns with ink."""
        positions, copies = self._positions[letter], self._glyphs[letter]
        first, end = np.searchsorted(positions, [hand - ONE_HAND, hand + ONE_HAND])
        while end - first < NEAREST:
            left = hand - positions[first - 1] if first > 0 else np.inf
            right = positions[end] - hand if end < len(positions) else np.inf
            first, end = (first - 1, end) if left <= right else (first, end + 1)
        ink = self._ink[copies[rng.integers(first, end)]]
        used = np.flatnonzero(ink.any(axis=0))
        return np.asarray(ink[:, used[0] : used[-1] + 1])


def _lines(
    split: Split,
    size: int,
    text: str,
    seed: int,
    num_words: tuple[int, int] = (MIN_WORDS, MAX_WORDS),
) -> Lines:
    """The ids, texts and images of lines of a split."""
    least, most = num_words
    words = text.split()
    words = words[round(BEGIN[split] * len(words)) : round(END[split] * len(words))]
    letters = np.concatenate([[0], np.cumsum([len(word) for word in words], dtype=np.int64)])

    def fits(begin: Any, count: int) -> Any:
        return letters[begin + count] - letters[begin] + count - 1 <= MAX_LETTERS

    begins = np.arange(len(words) - most + 1)
    begins = begins[fits(begins, least)] if len(begins) else begins
    if not len(begins):
        raise ValueError(
            f"letters.load: the text must have lines of {least} words for {split}, but its "
            f"{len(words)} words make none of at most {MAX_LETTERS} letters"
        )
    pool = _Pool(split)
    texts, images = [], []
    for index in range(size):
        rng = stream("letters lines", seed, SPLITS.index(split), index)
        begin = begins[rng.integers(len(begins))]
        count = int(rng.integers(least, most, endpoint=True))
        while not fits(begin, count):
            count -= 1
        texts.append(" ".join(words[begin : begin + count]))
        images.append(pool.write(texts[-1], rng))
    return [f"{split}-line-{index}" for index in range(size)], texts, images
