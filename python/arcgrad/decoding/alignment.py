"""Alignment of words with the frames of a recording or a line of text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arcgrad import _core
from arcgrad._arguments import checked

from ._labels import Labels
from ._spelling import STAR, Spelling, split_words

Array = npt.NDArray[Any]

# What a star scores below the best label of a frame: where a text explains frames, it is better.
STAR_SCORE = -0.1
# How many tokens from the best alignment others may be that count in confidences.
REACH = 64


class CharSpan(NamedTuple):
    """The frames of the characters of a token, such as a letter or a word piece.

    >>> from arcgrad.decoding import CharSpan
    >>> CharSpan("a", 0.1, 0.14, -0.2, 0.99).char
    'a'
    """

    char: str
    start: float
    end: float
    score: float
    confidence: float


class WordSpan(NamedTuple):
    """Where a word is.

    Attributes:
        word: The word as it is in the text.
        start: Its begin, in frames or, with ``frame_shift``, in seconds.
        end: Its end. That of a missing word is its start.
        score: The mean log-probability of its tokens over their frames; -inf if it is missing.
        confidence: The mean posterior of its tokens over their frames, among all alignments of the
            words; 0 if it is missing.
        chars: The spans of its tokens.
        kind: ``"word"``, ``"star"`` for a word without a known character, ``"missing"`` for a word
            that was skipped, and ``"extra"`` for frames without a word.

    >>> from arcgrad.decoding import WordSpan
    >>> WordSpan("hello", 0.1, 0.4, -0.2, 0.99).end
    0.4
    """

    word: str
    start: float
    end: float
    score: float
    confidence: float
    chars: tuple[CharSpan, ...] = ()
    kind: str = "word"


class WordAlignment(list[WordSpan]):
    """The spans of all words of a text, in order, with a report.

    Attributes:
        extra: Spans of frames that belong to no word, if such are allowed.
        unspelled: The positions of words with unknown characters, and these characters.
        score: The score of the alignment: the sum over all frames, and penalties.
        bound: An upper bound of the score of any alignment. It equals ``score``: the result is
            exact.
        width: How many tokens the search considered at a frame, to prove the bound.
        passes: How often it ran, each time with more tokens.

    >>> from arcgrad.decoding import WordAlignment
    >>> WordAlignment().extra
    []
    """

    def __init__(self, spans: Sequence[WordSpan] = ()) -> None:
        super().__init__(spans)
        self.extra: list[WordSpan] = []
        self.unspelled: dict[int, str] = {}
        self.score = 0.0
        self.bound = 0.0
        self.width = 0
        self.passes = 0


class _Chain:
    """The tokens of a text as the core aligns them; see ``trellis/align/chain.h``."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.characters: list[str] = []
        self.words: list[int] = []  # of each token; -1 for extra frames
        self.entry: list[float] = []
        self.optional: list[bool] = []
        self.borders = [0]  # gaps between words
        self.skips: list[tuple[int, int]] = []

    def add_star(self, weight: float) -> None:
        """Frames that may belong to no word."""
        self._add(STAR, "", -1, weight, True)
        self.borders.append(len(self.tokens))

    def add_word(self, word: int, tokens: Sequence[int], characters: Sequence[str]) -> None:
        for token, text in zip(tokens, characters, strict=True):
            self._add(token, text, word, 0.0, False)
        self.borders.append(len(self.tokens))

    def _add(self, token: int, text: str, word: int, weight: float, is_optional: bool) -> None:
        self.tokens.append(token)
        self.characters.append(text)
        self.words.append(word)
        self.entry.append(weight)
        self.optional.append(is_optional)


@checked
def align_words(
    log_probs: Any,
    words: Any,
    labels: Sequence[str],
    *,
    star: str | None = "*",
    skip_penalty: float | None = None,
    free_ends: bool = False,
    frame_shift: float | None = None,
    lengths: Any = None,
    blank: int | str | None = None,
    separator: int | str | None = None,
) -> Any:
    """Where the words of a text are in a recording.

    The result is the best of all alignments, for hours of audio, too: memory does not grow with the
    product of frames and tokens.

    Args:
        log_probs: Log-probabilities ``[T, C]`` of a network; a batch is ``[B, T, C]`` or a list.
        words: A text, or the list of its words; for a batch a list of these.
        labels: The name of each label, such as letters or word pieces that begin with ``▁``.
        star: A word that matches any sound; unknown characters are read as stars. With None unknown
            characters are an error.
        skip_penalty: What it costs to skip a word, and to leave a stretch of frames without words.
            By default all words are found, and only blanks are between them. Values are about
            the log-probability of one or two wrong letters: 5 to 20.
        free_ends: Whether other words may be before the first word and after the last one.
        frame_shift: The seconds between two frames; by default results are in frames.
        lengths: The number of frames of each example of a batch.
        blank: The label of the blank, or its name; by default found by its name.
        separator: The label between words, or its name; by default found by its name.

    Returns:
        A list with a :class:`WordSpan` for each word, with the attributes of
        :class:`WordAlignment`; for a batch a list of these. Without words it is empty.

    Raises:
        ValueError: If the words do not fit into the frames, or labels do not fit.

    >>> import numpy as np
    >>> from arcgrad.decoding import align_words
    >>> labels = ["<blank>", "|", "a", "b"]
    >>> log_probs = np.log(np.full((7, 4), 0.02) + 0.92 * np.eye(4)[[0, 2, 3, 0, 1, 2, 0]])
    >>> [(word.word, word.start, word.end) for word in align_words(log_probs, "ab a", labels)]
    [('ab', 1, 3), ('a', 5, 6)]
    """
    op = "align_words"
    known = Labels(op, labels, blank, separator)
    if skip_penalty is not None and not 0 <= skip_penalty < math.inf:
        raise ValueError(
            f"{op}: the skip penalty must be finite and at least 0, but it is {skip_penalty}"
        )
    if frame_shift is not None and not 0 < frame_shift < math.inf:
        raise ValueError(f"{op}: the frame shift must be positive, but it is {frame_shift}")
    examples, texts, is_batch = _examples(op, log_probs, words, lengths, len(known.names))
    aligner = _Aligner(op, known, star, skip_penalty, free_ends, frame_shift)
    found = []
    for i, (scores, text) in enumerate(zip(examples, texts, strict=True)):
        try:
            found.append(aligner.align(scores, split_words(op, text)))
        except ValueError as error:
            if not is_batch:
                raise
            message = str(error).removeprefix(f"{op}: ")
            raise ValueError(f"{op} (element {i} of {len(texts)}): {message}") from None
    return found if is_batch else found[0]


def _examples(
    op: str, log_probs: Any, words: Any, lengths: Any, num_labels: int
) -> tuple[list[Array], list[Any], bool]:
    """The frames and the text of each example."""
    if isinstance(log_probs, list | tuple) and all(np.ndim(x) == 2 for x in log_probs):
        examples, is_batch = [np.asarray(each) for each in log_probs], True
    else:
        array = np.asarray(log_probs)
        is_batch = array.ndim == 3
        examples = list(array) if is_batch else [array]
    for array in examples:
        if array.ndim != 2 or array.shape[1] != num_labels:
            raise ValueError(
                f"{op}: log_probs must have the shape [T, {num_labels}], one column per label, but "
                f"their shape is {list(array.shape)}"
            )
        if array.dtype.kind not in "f":
            raise TypeError(f"{op}: log_probs must be real numbers, but they are {array.dtype}")
    if lengths is not None:
        counts = np.asarray(lengths).reshape(-1).tolist()
        if len(counts) != len(examples):
            raise ValueError(
                f"{op}: there must be {len(examples)} lengths, but there are {len(counts)}"
            )
        for array, count in zip(examples, counts, strict=True):
            if not 0 <= count <= len(array):
                raise ValueError(
                    f"{op}: a length must be between 0 and {len(array)}, but it is {count}"
                )
        examples = [array[:count] for array, count in zip(examples, counts, strict=True)]
    if not is_batch:
        return examples, [words], False
    if isinstance(words, str) or len(words) != len(examples):
        raise ValueError(
            f"{op}: there must be a text for each of {len(examples)} examples, but there "
            + ("is one string" if isinstance(words, str) else f"are {len(words)}")
        )
    return examples, [*words], True


class _Aligner:
    def __init__(
        self,
        op: str,
        labels: Labels,
        star: str | None,
        skip_penalty: float | None,
        free_ends: bool,
        frame_shift: float | None,
    ) -> None:
        self._op, self._labels, self._star = op, labels, star
        self._penalty, self._free_ends, self._shift = skip_penalty, free_ends, frame_shift
        self._spelling = Spelling(labels)
        self._separators = [i for i, role in enumerate(labels.roles) if role == 1]

    def align(self, log_probs: Array, words: list[str]) -> WordAlignment:
        chain, unspelled = self._chain(words)
        if not words:
            return WordAlignment()
        scores, tokens, gaps = self._columns(log_probs, chain)
        skips = np.array(chain.skips, np.int32).reshape(-1, 2)
        with_options = any(chain.optional)
        found: Any = _core.align_tokens(
            _core.linear_graph(
                len(scores), scores.shape[1], weights=scores, dtype=str(scores.dtype)
            ),
            tokens,
            gaps,
            np.array(chain.entry if with_options else [], np.float64),
            np.array(chain.optional if with_options else [], np.bool_),
            np.ascontiguousarray(skips[:, 0]),
            np.ascontiguousarray(skips[:, 1]),
            np.full(len(skips), -(self._penalty or 0.0)),
            REACH,
        )
        if found is None:
            self._refuse(log_probs, chain)
        result = self._spans(chain, words, found)
        result.unspelled = unspelled
        result.score = result.bound = found["score"]
        result.width, result.passes = found["width"], found["passes"]
        return result

    def _chain(self, words: list[str]) -> tuple[_Chain, dict[int, str]]:
        chain = _Chain()
        unspelled: dict[int, str] = {}
        for i, word in enumerate(words):
            if self._penalty is not None or (self._free_ends and i == 0):
                is_free = self._free_ends and i == 0
                chain.add_star(0.0 if is_free else -(self._penalty or 0.0))
            begin = len(chain.tokens) - (self._penalty is not None)
            if word == self._star:
                chain.add_word(i, [STAR], [word])
            else:
                tokens, characters, unknown = self._spelling(word)
                if unknown:
                    unspelled[i] = unknown
                chain.add_word(i, tokens, characters)
            if self._penalty is not None:
                chain.skips.append((begin, len(chain.tokens)))
        if self._penalty is not None or (self._free_ends and words):
            chain.add_star(0.0 if self._free_ends else -(self._penalty or 0.0))
        if unspelled and self._star is None:
            shown = ", ".join(f"{words[i]!r} ({text})" for i, text in [*unspelled.items()][:5])
            raise ValueError(
                f"{self._op}: all characters of words must be labels, but {len(unspelled)} words "
                f"have others: {shown}; pass star"
            )
        return chain, unspelled

    def _columns(self, log_probs: Array, chain: _Chain) -> tuple[Array, Array, Array]:
        """The scores with columns of stars and borders, and the columns of tokens and gaps."""
        scores = log_probs if log_probs.dtype.itemsize >= 4 else log_probs.astype(np.float32)
        blank = self._labels.blank
        columns = []
        num_labels = scores.shape[1]
        tokens = np.array(chain.tokens, np.int32)
        if STAR in chain.tokens:
            tokens[tokens == STAR] = num_labels
            columns.append(scores.max(axis=1) + np.asarray(STAR_SCORE, scores.dtype))
        gaps = np.full(1, blank, np.int32)
        if self._separators:
            gaps = np.full(len(tokens) + 1, blank, np.int32)
            gaps[chain.borders] = num_labels + len(columns)
            border = scores[:, blank]
            with np.errstate(invalid="ignore"):  # the core refuses NaN by name
                for label in self._separators:
                    border = np.logaddexp(border, scores[:, label])
            columns.append(border)
        if columns:
            scores = np.concatenate([scores, np.stack(columns, axis=1)], axis=1)
        return scores, tokens, gaps

    def _refuse(self, log_probs: Array, chain: _Chain) -> None:
        pairs = itertools.pairwise(chain.tokens)
        least = len(chain.tokens) + sum(a == b for a, b in pairs)
        if least > len(log_probs):
            raise ValueError(
                f"{self._op}: the words must fit into the frames, but they need {least} frames, "
                f"and there are {len(log_probs)}; pass skip_penalty if words may be missing"
            )
        raise ValueError(
            f"{self._op}: some alignment must have a finite score, but log_probs of -inf exclude "
            "all of them"
        )

    def _spans(self, chain: _Chain, words: list[str], found: dict[str, Any]) -> WordAlignment:
        begins, ends, sums = found["begins"], found["ends"], found["scores"]
        states = found["states"]
        of_token = np.where(states % 2 == 1, (states + 1) // 2, 0)
        posteriors = np.bincount(of_token, found["posteriors"], len(begins) + 1)[1:]
        counts = ends - begins
        columns = begins, ends, sums, posteriors, counts
        rows = zip(*(column.tolist() for column in columns), strict=True)
        result = WordAlignment()
        tokens = zip(chain.words, chain.characters, chain.tokens, rows, strict=True)
        for word, parts in itertools.groupby(tokens, lambda part: part[0]):
            span = self._span(words, word, list(parts))
            if word >= 0:
                result.append(span)
            elif span.end > span.start:
                result.extra.append(span)
        return result

    def _span(self, words: list[str], word: int, parts: list[Any]) -> WordSpan:
        text = words[word] if word >= 0 else ""
        begin, end = parts[0][3][0], parts[-1][3][1]
        total = sum(row[4] for *_, row in parts)
        if total == 0:
            kind = "missing"
            at = self._time(end)
            return WordSpan(text, at, at, -math.inf, 0.0, (), kind)
        is_star = all(token == STAR for _, _, token, _ in parts)
        kind = "extra" if word < 0 else "star" if is_star else "word"
        chars = tuple(
            CharSpan(char, self._time(row[0]), self._time(row[1]), row[2] / row[4], row[3] / row[4])
            for _, char, _, row in parts
            if row[4]
        )
        score = math.fsum(row[2] for *_, row in parts) / total
        confidence = min(1.0, math.fsum(row[3] for *_, row in parts) / total)
        return WordSpan(text, self._time(begin), self._time(end), score, confidence, chars, kind)

    def _time(self, frame: int) -> float:
        return frame if self._shift is None else frame * self._shift
