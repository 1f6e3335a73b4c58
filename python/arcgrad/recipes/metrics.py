"""Error rates by edit distance: of letters (CER) and of words (WER).

A space and ``▁`` are the same boundary between words. Boundaries at the ends of a text do not
count, and several in a row count as one, for letters as for words. The rate of a corpus is the
number of errors of all examples, divided by the number of letters or words of all references.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

__all__ = [
    "Difference",
    "Errors",
    "Evaluation",
    "Scored",
    "char_errors",
    "confusions",
    "differences",
    "evaluate",
    "word_errors",
]

BOUNDARY = "▁"

# A text, or the tokens that make it up.
Text = str | Sequence[str]


@dataclass(frozen=True)
class Errors:
    """The edits that turn references into hypotheses.

    Attributes:
        substitutions: The number of substituted letters or words.
        deletions: The number of letters or words that are missing in the hypothesis.
        insertions: The number of letters or words that only the hypothesis has.
        length: The number of letters or words of the references.

    >>> from arcgrad.recipes.metrics import Errors
    >>> total = Errors(1, 0, 0, 10) + Errors(0, 2, 1, 30)
    >>> total.count, total.rate
    (4, 10.0)
    """

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    length: int = 0

    @property
    def count(self) -> int:
        """The number of edits."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """The edits in percent of the length; infinity for edits of an empty reference."""
        if self.length == 0:
            return math.inf if self.count else 0.0
        return 100.0 * self.count / self.length

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.length + other.length,
        )


@dataclass(frozen=True)
class Scored:
    """An example with its errors.

    Attributes:
        reference: Its text, with spaces between words.
        hypothesis: The recognised text.
        chars: Errors of letters; boundaries between words count as letters.
        words: Errors of words.
    """

    reference: str
    hypothesis: str
    chars: Errors
    words: Errors


@dataclass(frozen=True)
class Evaluation:
    """The errors of a corpus.

    Attributes:
        chars: Errors of letters, in all.
        words: Errors of words, in all.
        examples: The examples, in their order.
    """

    chars: Errors
    words: Errors
    examples: tuple[Scored, ...]

    @property
    def cer(self) -> float:
        """The errors of letters in percent."""
        return self.chars.rate

    @property
    def wer(self) -> float:
        """The errors of words in percent."""
        return self.words.rate


def char_errors(reference: Text, hypothesis: Text) -> Errors:
    """The errors of letters, including boundaries inside the text.

    Args:
        reference: A text, or tokens.
        hypothesis: A text, or tokens.

    Returns:
        The minimal edits.

    >>> from arcgrad.recipes.metrics import char_errors
    >>> char_errors("the cat", ["▁the", "▁c", "u", "t", "s"])
    Errors(substitutions=1, deletions=0, insertions=1, length=7)
    """
    return _errors(_marked(reference), _marked(hypothesis))


def word_errors(reference: Text, hypothesis: Text) -> Errors:
    """The errors of words.

    Args:
        reference: A text, or tokens.
        hypothesis: A text, or tokens.

    Returns:
        The minimal edits.

    >>> from arcgrad.recipes.metrics import word_errors
    >>> word_errors("the cat sat", "▁the▁▁cut")
    Errors(substitutions=1, deletions=1, insertions=0, length=3)
    """
    return _errors(_words(reference), _words(hypothesis))


def evaluate(references: Iterable[Text], hypotheses: Iterable[Text]) -> Evaluation:
    """The errors of a corpus and of each of its examples.

    Args:
        references: The text, or the tokens, of each example.
        hypotheses: The recognised texts, in the same order.

    Returns:
        The errors.

    Raises:
        ValueError: If there are not as many references as hypotheses.

    >>> from arcgrad.recipes.metrics import evaluate
    >>> result = evaluate(["one two", "three"], ["one too", "three"])
    >>> f"{result.cer:.2f} {result.wer:.2f}"
    '8.33 33.33'
    >>> result.examples[1].chars.count
    0
    """
    references, hypotheses = list(references), list(hypotheses)
    if len(references) != len(hypotheses):
        raise ValueError(
            "evaluate: each reference must have a hypothesis, but there are "
            f"{len(references)} and {len(hypotheses)}"
        )
    examples = tuple(
        Scored(
            _marked(reference).replace(BOUNDARY, " "),
            _marked(hypothesis).replace(BOUNDARY, " "),
            char_errors(reference, hypothesis),
            word_errors(reference, hypothesis),
        )
        for reference, hypothesis in zip(references, hypotheses, strict=True)
    )
    chars = sum((example.chars for example in examples), Errors())
    words = sum((example.words for example in examples), Errors())
    return Evaluation(chars, words, examples)


class Difference(NamedTuple):
    """A pair of aligned parts of two texts, which are equal or differ."""

    reference: str
    hypothesis: str

    @property
    def is_error(self) -> bool:
        """Whether the texts differ here."""
        return self.reference != self.hypothesis


def differences(reference: Text, hypothesis: Text) -> list[Difference]:
    """Align two texts by minimal edits, as pairs of equal or different parts.

    Args:
        reference: A text, or tokens.
        hypothesis: A text, or tokens.

    Returns:
        Pairs in order, with spaces between words. A pair that differs has at most one letter on
        each side.

    >>> from arcgrad.recipes.metrics import differences
    >>> [tuple(part) for part in differences("the cat", "thecut")]
    [('the', 'the'), (' ', ''), ('c', 'c'), ('a', 'u'), ('t', 't')]
    """
    one, two = (_marked(text).replace(BOUNDARY, " ") for text in (reference, hypothesis))
    found = []
    for block in Levenshtein.opcodes(one, two):
        parts = one[block.src_start : block.src_end], two[block.dest_start : block.dest_end]
        if block.tag == "equal":
            found.append(Difference(*parts))
        else:
            found += [Difference(*pair) for pair in itertools.zip_longest(*parts, fillvalue="")]
    return found


def confusions(examples: Iterable[Scored]) -> Counter[Difference]:
    """Count how often each letter was recognised as another.

    Args:
        examples: Examples, such as ``Evaluation.examples``.

    Returns:
        The count of each pair of different letters; a missing or superfluous letter is paired with
        an empty text. The total is the number of edits.

    >>> from arcgrad.recipes.metrics import confusions, evaluate
    >>> found = confusions(evaluate(["noun", "mine"], ["nonn", "mne"]).examples)
    >>> [(tuple(pair), count) for pair, count in found.items()]
    [(('u', 'n'), 1), (('i', ''), 1)]
    """
    return Counter(
        part
        for example in examples
        for part in differences(example.reference, example.hypothesis)
        if part.is_error
    )


def _marked(text: Text) -> str:
    """A text with one boundary between two words."""
    return BOUNDARY.join(_words(text))


def _words(text: Text) -> list[str]:
    joined = text if isinstance(text, str) else "".join(text)
    return [word for word in joined.replace(" ", BOUNDARY).split(BOUNDARY) if word]


def _errors(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    """The minimal edits from one sequence to another."""
    counts = {"replace": 0, "delete": 0, "insert": 0}
    for edit in Levenshtein.editops(reference, hypothesis):
        counts[edit.tag] += 1
    return Errors(counts["replace"], counts["delete"], counts["insert"], len(reference))
