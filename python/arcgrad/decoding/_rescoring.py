"""Other choices among the n best results: another model, and the least expected error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arcgrad._arguments import checked
from arcgrad.ngram import CompactModel, Model

from ._word_errors import align, num_errors
from .hypothesis import Hypothesis


@checked
def rescore(
    results: Sequence[Hypothesis],
    model: Model | CompactModel | Callable[[list[str]], Sequence[float]],
    weight: float,
    *,
    replace: float = 0.0,
) -> list[Hypothesis]:
    """The n best results of an example, ordered with the scores of another language model.

    The new score is the old one plus ``weight`` times the score of the model. ``language`` becomes
    the score of the model if the old one is replaced, and else stays.

    Args:
        results: From :meth:`CTCDecoder.decode` with ``nbest``.
        model: An n-gram model of words, or a function that takes a list of texts and returns the
            logarithm of the probability of each, such as a neural model.
        weight: The weight of the new scores.
        replace: The ``alpha`` of the decoder, to take the scores of its own model away.

    Raises:
        ValueError: If the function does not return a number for each text.

    >>> import arcgrad as ag
    >>> found = [ag.decoding.Hypothesis("a b", -1.0), ag.decoding.Hypothesis("a a", -1.5)]
    >>> without_b = lambda texts: [-text.count("b") for text in texts]
    >>> [(result.text, result.score) for result in ag.decoding.rescore(found, without_b, 2.0)]
    [('a a', -1.5), ('a b', -3.0)]
    """
    texts = [result.text for result in results]
    if isinstance(model, Model):
        model = model.compact()
    if isinstance(model, CompactModel):
        scores = [sum(model.scores(text.split())) for text in texts]
    else:
        scores = [float(score) for score in model(texts)]
    if len(scores) != len(texts) or any(math.isnan(score) for score in scores):
        raise ValueError(
            f"rescore: the model must return a number for each of {len(texts)} texts, but it "
            f"returned {scores}"
        )
    found = [
        dataclasses.replace(
            result,
            score=result.score - replace * result.language + weight * score,
            language=score if replace else result.language,
        )
        for result, score in zip(results, scores, strict=True)
    ]
    return sorted(found, key=lambda result: -result.score)


def _posteriors(results: Sequence[Hypothesis], scale: float) -> NDArray[np.float64]:
    scores = scale * np.array([result.score for result in results])
    weights: NDArray[np.float64] = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights


@checked
def minimum_risk(results: Sequence[Hypothesis], scale: float = 1.0) -> Hypothesis:
    """The result with the least expected number of word errors (minimum Bayes risk).

    The expectation is over ``results``, with probabilities proportional to ``exp(scale * score)``.

    >>> import arcgrad as ag
    >>> scores = {"a b c": -1.0, "a d c": -1.1, "a d e": -1.2}
    >>> found = [ag.decoding.Hypothesis(text, score) for text, score in scores.items()]
    >>> ag.decoding.minimum_risk(found).text
    'a d c'
    """
    if not results:
        raise ValueError("minimum_risk: there must be one result or more, but there is none")
    words = [result.text.split() for result in results]
    errors = np.array([[num_errors(one, other) for other in words] for one in words])
    return results[int(np.argmin(errors @ _posteriors(results, scale)))]


class Slot(NamedTuple):
    """The alternatives at one place of a confusion network, the most likely first.

    Args:
        words: Words; ``""`` is no word.
        probabilities: Of each word; their sum is 1.

    >>> import arcgrad as ag
    >>> ag.decoding.Slot(["cat", ""], [0.75, 0.25]).words[0]
    'cat'
    """

    words: list[str]
    probabilities: list[float]


@checked
def confusion_network(results: Sequence[Hypothesis], scale: float = 1.0) -> list[Slot]:
    """The words of n best results, aligned with the best one: alternatives with probabilities.

    The consensus, ``" ".join(slot.words[0] for slot in network if slot.words[0])``, has the most
    likely word of each place.

    Args:
        results: From :meth:`CTCDecoder.decode` with ``nbest``.
        scale: Probabilities of results are proportional to ``exp(scale * score)``.

    >>> import arcgrad as ag
    >>> scores = {"a b c": -1.0, "a d c": -1.1, "a c": -1.2}
    >>> found = [ag.decoding.Hypothesis(text, score) for text, score in scores.items()]
    >>> [slot.words for slot in ag.decoding.confusion_network(found)]
    [['a'], ['b', 'd', ''], ['c']]
    """
    if not results:
        raise ValueError("confusion_network: there must be one result or more, but there is none")
    weights = _posteriors(results, scale)
    slots: list[dict[str, float]] = []
    best: list[str] = []  # the first word of each slot, with which results are aligned
    before = 0.0
    for result, weight in zip(results, weights.tolist(), strict=True):
        words = result.text.split()
        aligned: list[dict[str, float]] = []
        names: list[str] = []
        for i, j in align(best, words):
            word = "" if j is None else words[j]
            slot = {"": before} if i is None else slots[i]
            slot[word] = slot.get(word, 0.0) + weight
            aligned.append(slot)
            names.append(word if i is None else best[i])
        slots, best, before = aligned, names, before + weight
    found = [sorted(slot.items(), key=lambda item: -item[1]) for slot in slots]
    return [Slot([w for w, p in s if p > 0], [p for _, p in s if p > 0]) for s in found]
