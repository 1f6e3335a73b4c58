"""Results of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Token(NamedTuple):
    """A token of a result: its label, and its frames from ``start`` up to but not ``end``.

    >>> import arcgrad as ag
    >>> token = ag.decoding.Token(label=3, start=2, end=5)
    >>> token.end - token.start
    3
    """

    label: int
    start: int
    end: int


class Word(NamedTuple):
    """A word of a result, and its frames from ``start`` up to but not ``end``.

    ``confidence`` is the posterior probability that the word is there, given the paths that the
    search kept; it is None unless it was asked for. ``is_known`` tells whether the lexicon has it.

    >>> import arcgrad as ag
    >>> ag.decoding.Word("cat", start=3, end=9).text
    'cat'
    """

    text: str
    start: int
    end: int
    confidence: float | None = None
    is_known: bool = True


@dataclass(frozen=True)
class Hypothesis:
    """A result of decoding.

    ``score`` is ``acoustic`` plus ``alpha`` times ``language`` plus ``hotword`` plus the scores of
    words and silences. Scores are natural logarithms. ``is_complete`` is false if the search found
    no path that ends with a whole word; the text then lacks the last, partial one.

    >>> import arcgrad as ag
    >>> ag.decoding.Hypothesis(text="a cat", score=-3.5).text
    'a cat'
    """

    text: str
    score: float
    acoustic: float = 0.0
    language: float = 0.0
    hotword: float = 0.0
    words: list[Word] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    is_complete: bool = True

    @property
    def labels(self) -> list[int]:
        """The labels of the tokens."""
        return [token.label for token in self.tokens]


class Partial(NamedTuple):
    """What a stream has recognized so far.

    Later frames can change ``text``, but not its beginning ``stable``. The last word may be
    partial.

    >>> import arcgrad as ag
    >>> ag.decoding.Partial(text="the ca", stable="the").text
    'the ca'
    """

    text: str
    stable: str
