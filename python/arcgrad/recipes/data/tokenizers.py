"""Tokenizers: convert texts to labels and back, by letters or by word pieces."""

from __future__ import annotations

import functools
import io
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import sentencepiece

from arcgrad import _files

# Marks the boundary between words, and the start of a word in a word piece.
BOUNDARY = "▁"

# The maximum number of letters of a piece.
MAX_LETTERS = 16

# The length up to which SentencePiece keeps texts, the largest that it allows.
MAX_BYTES = 1 << 30


class Tokenizer(Protocol):
    """Converts texts to labels and back.

    Labels start at 0 and do not include the blank of a loss. Words are separated by
    :data:`BOUNDARY` among the tokens and by spaces in texts.
    """

    @property
    def tokens(self) -> tuple[str, ...]:
        """The token of each label."""

    def encode(self, text: str, *, skip_unknown: bool = False) -> list[int]:
        """The labels of a text."""

    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for :func:`load_tokenizer`."""


def _marked(text: str) -> str:
    """A text with boundaries between its words."""
    if BOUNDARY in text:
        raise ValueError(
            f"encode: words must be separated by spaces, but the text {text!r} has {BOUNDARY!r}"
        )
    return BOUNDARY.join(text.split())


def _joined(tokens: Sequence[str], labels: Iterable[int]) -> str:
    """The text of labels."""
    pieces = []
    for label in labels:
        if not 0 <= label < len(tokens):
            raise ValueError(f"decode: labels must be in [0, {len(tokens)}), but one is {label}")
        pieces.append(tokens[label])
    return " ".join("".join(pieces).replace(BOUNDARY, " ").split())


def _reject(op: str, text: str, unknown: Iterable[str]) -> None:
    """Raise for letters of a text that occur in no token."""
    letters = ", ".join(repr(letter) for letter in sorted(set(unknown)))
    raise ValueError(f"{op}: the tokens must spell the text, but {text!r} has {letters}")


@dataclass(frozen=True)
class Letters:
    """A token for each letter, and one for the boundary between words.

    Args:
        tokens: The letters, each once; with :data:`BOUNDARY` if texts have several words.
        leading_boundary: Whether labels start with a boundary, like the first word piece of a text.
            Losses that sum over all segmentations into word pieces need it.

    Raises:
        ValueError: If a token is not a single letter, or occurs twice.

    >>> from arcgrad.recipes.data import Letters
    >>> letters = Letters.from_texts(["a cab", "bad"])
    >>> letters.tokens
    ('▁', 'a', 'b', 'c', 'd')
    >>> letters.encode("a bad cab")
    [1, 0, 2, 1, 4, 0, 3, 1, 2]
    >>> letters.decode([0, 2, 1, 4, 0, 0, 3, 1, 2])
    'bad cab'
    """

    tokens: tuple[str, ...]
    leading_boundary: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        seen: set[str] = set()
        for token in self.tokens:
            if len(token) != 1 or token.isspace() or token in seen:
                raise ValueError(
                    "Letters: a token must be one letter, each once, but "
                    f"{_files.shown(token)} is not"
                )
            seen.add(token)
        if self.leading_boundary and BOUNDARY not in self.tokens:
            raise ValueError(
                f"Letters: a leading boundary must be a token, but {BOUNDARY!r} is not"
            )

    @classmethod
    def from_texts(cls, texts: Iterable[str], *, leading_boundary: bool = False) -> Letters:
        """Return the tokenizer of all letters of texts: the boundary, then alphabetical order."""
        letters = {letter for text in texts for letter in _marked(text)} - {BOUNDARY}
        return cls((BOUNDARY, *sorted(letters)), leading_boundary)

    @functools.cached_property
    def _labels(self) -> dict[str, int]:
        return {token: label for label, token in enumerate(self.tokens)}

    def encode(self, text: str, *, skip_unknown: bool = False) -> list[int]:
        """The labels of a text.

        Args:
            text: Words separated by spaces.
            skip_unknown: Whether to leave out letters that are not tokens.

        Raises:
            ValueError: If a letter is not a token, unless such letters are left out.
        """
        marked = (BOUNDARY if self.leading_boundary else "") + _marked(text)
        unknown = [letter for letter in marked if letter not in self._labels]
        if unknown and not skip_unknown:
            _reject("encode", text, unknown)
        return [self._labels[letter] for letter in marked if letter in self._labels]

    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels, with one space between words."""
        return _joined(self.tokens, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file for :func:`load_tokenizer`."""
        content = {"tokens": self.tokens, "leading_boundary": self.leading_boundary}
        _files.write(path, json.dumps(content, ensure_ascii=False).encode())


@dataclass(frozen=True)
class WordPieces:
    """Word pieces of a SentencePiece model.

    Pieces that start a word begin with :data:`BOUNDARY`. The model's unknown piece is not a token.

    Args:
        model: The content of a SentencePiece model file.

    Raises:
        ValueError: If the content is not a SentencePiece model.

    >>> from arcgrad.recipes.data import WordPieces
    >>> pieces = WordPieces.train(["the cat sat on the mat", "the rat sat"], size=14)
    >>> len(pieces.tokens)
    14
    >>> pieces.decode(pieces.encode("the rat on the mat"))
    'the rat on the mat'
    """

    model: bytes

    def __post_init__(self) -> None:
        try:
            processor = self._processor
        except RuntimeError as error:
            raise ValueError(
                f"WordPieces: the model must be from SentencePiece, but reading it fails: {error}"
            ) from None
        if processor.unk_id() != 0:
            raise ValueError(
                "WordPieces: the unknown piece of the model must be piece 0, but it is piece "
                f"{processor.unk_id()}"
            )

    @classmethod
    def train(cls, texts: Iterable[str], size: int, *, max_length: int | None = None) -> WordPieces:
        """Learn word pieces with SentencePiece's unigram model.

        Args:
            texts: The training texts. Every letter in them becomes a piece.
            size: The number of pieces.
            max_length: The maximum number of letters of a piece, with the boundary; 16 by default.

        Returns:
            The tokenizer.

        Raises:
            ValueError: If there is no text, or the texts have too many letters or too few pieces
                for the size.
        """
        spaced = [text for text in (_marked(text).replace(BOUNDARY, " ") for text in texts) if text]
        if not spaced:
            raise ValueError("WordPieces.train: there must be a text, but all are empty")
        letters = set("".join(spaced)) - {" "}
        if size <= len(letters):
            raise ValueError(
                f"WordPieces.train: the size must be at least {len(letters) + 1}, for the letters "
                f"and the boundary, but it is {size}"
            )
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(spaced),
                model_writer=model,
                model_type="unigram",
                vocab_size=size + 1,  # and the unknown piece
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                character_coverage=1.0,
                # Other rules would replace some letters.
                normalization_rule_name="identity",
                max_sentence_length=MAX_BYTES,
                max_sentencepiece_length=MAX_LETTERS if max_length is None else max_length,
                num_threads=1,  # rounding would depend on the number of threads
                minloglevel=2,
            )
        except RuntimeError as error:
            most = re.search(r"Vocabulary size too high .* <= (\d+)", str(error))
            if most is None:
                raise
            raise ValueError(
                f"WordPieces.train: the texts have at most {int(most[1]) - 1} pieces, but the size "
                f"is {size}"
            ) from None
        return cls(model.getvalue())

    @functools.cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """The pieces."""
        return tuple(
            self._processor.id_to_piece(piece) for piece in range(1, self._processor.vocab_size())
        )

    def encode(self, text: str, *, skip_unknown: bool = False) -> list[int]:
        """The labels of the best pieces of a text.

        Args:
            text: Words separated by spaces.
            skip_unknown: Whether to leave out letters that occur in no piece.

        Raises:
            ValueError: If a letter occurs in no piece, unless such letters are left out.
        """
        pieces = self._processor.encode(_marked(text).replace(BOUNDARY, " "))
        if 0 in pieces and not skip_unknown:
            letters = set("".join(self.tokens))
            _reject("encode", text, (letter for letter in _marked(text) if letter not in letters))
        return [piece - 1 for piece in pieces if piece != 0]

    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels, with one space between words."""
        return _joined(self.tokens, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a SentencePiece model file for :func:`load_tokenizer` and other programs."""
        _files.write(path, self.model)

    def __getstate__(self) -> dict[str, bytes]:
        return {"model": self.model}

    def __setstate__(self, state: dict[str, bytes]) -> None:
        object.__setattr__(self, "model", state["model"])


def load_tokenizer(path: str | os.PathLike[str]) -> Letters | WordPieces:
    """Read a saved tokenizer.

    Args:
        path: A file by :meth:`Letters.save`, or a SentencePiece model.

    Returns:
        The tokenizer.

    Raises:
        ValueError: If the file is neither; the message names it.
        OSError: If there is no such file.

    >>> from arcgrad.recipes.data import Letters, load_tokenizer
    >>> Letters.from_texts(["a cab"]).save("letters.json")
    >>> load_tokenizer("letters.json")
    Letters(tokens=('▁', 'a', 'b', 'c'), leading_boundary=False)
    """
    op, name = "load_tokenizer", repr(str(path))
    content = _files.read(op, path)
    try:
        if not content.startswith(b"{"):
            return WordPieces(content)
        fields = _files.parse_json(op, name, content)
        tokens, leading_boundary = fields.get("tokens"), fields.get("leading_boundary")
        if (
            not isinstance(tokens, list)
            or not all(isinstance(token, str) for token in tokens)
            or not isinstance(leading_boundary, bool)
        ):
            raise ValueError("it must have a list of tokens and leading_boundary")
        return Letters(tuple(tokens), leading_boundary)
    except ValueError as error:
        reason = str(error).removeprefix(f"{op}: ")
        raise ValueError(f"{op}: {name} must hold a tokenizer, but it does not: {reason}") from None
