"""Language models that are objects: binary files of KenLM, and models written in Python."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

LN10 = math.log(10)


@runtime_checkable
class LanguageModel(Protocol):
    """A language model of words written in Python, as ``lm`` of :class:`CTCDecoder`.

    States are hashable; equal states have the same future. Scores are natural logarithms. A search
    calls each method once for each state and word that it meets, with the GIL.

    >>> import arcgrad as ag, numpy as np
    >>> class NoRepeats:
    ...     def start(self):
    ...         return ""
    ...     def score(self, state, word):
    ...         return word, -9.0 if word == state else 0.0
    ...     def finish(self, state):
    ...         return 0.0
    >>> isinstance(NoRepeats(), ag.decoding.LanguageModel)
    True
    >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"], NoRepeats(), ["a", "b"], alpha=1.0)
    >>> log_probs = np.log([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.5, 0.4]])
    >>> decoder.decode(log_probs)[0][0].text
    'a b'
    """

    def start(self) -> Hashable:
        """The state at the begin of a text."""

    def score(self, state: Any, word: str) -> tuple[Hashable, float]:
        """The state after a word, and the score of the word; unknown words are ``"<unk>"``."""

    def finish(self, state: Any) -> float:
        """The score of the end."""


class KenLM:
    """A binary file of KenLM, read by the package kenlm."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        try:
            kenlm = importlib.import_module("kenlm")
        except ImportError as error:
            raise ImportError(
                f"CTCDecoder: {name!r} is a binary file of KenLM, which needs the package kenlm, "
                "but it is not installed; pip install 'arcgrad[kenlm]', or use the ARPA file"
            ) from error
        self._new_state = kenlm.State
        try:
            self._model = kenlm.LanguageModel(name)
        except OSError as error:
            raise ValueError(f"CTCDecoder: kenlm cannot read {name!r}: {error}") from None
        self.has_boundaries = True

    def start(self) -> Hashable:
        state = self._new_state()
        if self.has_boundaries:
            self._model.BeginSentenceWrite(state)
        else:
            self._model.NullContextWrite(state)
        found: Hashable = state
        return found

    def score(self, state: Any, word: str) -> tuple[Hashable, float]:
        after = self._new_state()
        return after, self._model.BaseScore(state, word, after) * LN10

    def finish(self, state: Any) -> float:
        return self.score(state, "</s>")[1] if self.has_boundaries else 0.0

    def estimates(self, words: Sequence[str]) -> list[float]:
        """The scores of words without a history."""
        state, after = self._new_state(), self._new_state()
        self._model.NullContextWrite(state)
        return [self._model.BaseScore(state, word, after) * LN10 for word in words]


class NumberedModel:
    """A language model whose words are the numbers of a lexicon, as the search calls it."""

    def __init__(self, model: LanguageModel, words: Sequence[str]) -> None:
        self.start, self._score, self._words = model.start, model.score, words
        self.end_score = model.finish

    def next(self, state: Any, number: int) -> tuple[Hashable, float]:
        return self._score(state, self._words[number] if number >= 0 else "<unk>")
