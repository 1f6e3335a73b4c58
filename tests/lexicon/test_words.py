"""Word graphs: every pronunciation and its weight."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from spec import language

import arcgrad as ag
from arcgrad.lexicon import word_lexicon_graph

SPELLINGS = st.lists(st.integers(0, 1), min_size=1, max_size=3)
WORDS = st.lists(
    st.lists(SPELLINGS, min_size=1, max_size=2, unique_by=tuple), min_size=1, max_size=4
)


def readings(words, tokens, weights):
    """Every sequence of words that has the tokens as a pronunciation, and its weight."""
    if not tokens:
        return [((), 0.0)]
    found = []
    entries = [(label, way) for label, ways in enumerate(words) for way in ways]
    for (label, way), weight in zip(entries, weights, strict=True):
        if tokens[: len(way)] == way:
            for rest, score in readings(words, tokens[len(way) :], weights):
                found.append(((label, *rest), score + weight))
    return found


@given(WORDS, st.lists(st.integers(0, 1), max_size=5), st.data())
def test_tokens_become_words(words, tokens, data):
    number = sum(map(len, words))
    numbers = st.integers(-8, 8).map(lambda k: k / 8)
    weights = data.draw(st.lists(numbers, min_size=number, max_size=number))
    graph = word_lexicon_graph(words, weights=weights, dtype="float64")
    composed = ag.compose(ag.chain_graph(tokens, dtype="float64"), graph)
    expected = {}
    for sequence, score in readings(words, tokens, weights):
        expected[sequence] = float(np.logaddexp(expected.get(sequence, -math.inf), score))
    found = {string[1]: score for string, score in language(composed).items()}
    assert found == pytest.approx(expected)


@given(WORDS)
def test_words_share_their_prefixes(words):
    graph = word_lexicon_graph(words)
    ways = [tuple(way) for listed in words for way in listed]
    begun = {way[:k] for way in ways for k in range(1, len(way))}
    assert graph.num_nodes() == 1 + len(begun)
    assert graph.num_arcs() == len(ways) + len(begun)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0], [0])
    labels = [label for label, listed in enumerate(words) for _ in listed]
    assert graph.olabels()[: len(ways)].tolist() == labels


def test_a_word_may_have_one_pronunciation_or_several():
    single = word_lexicon_graph({"no": [1, 2], "know": [1, 2], "now": (1, 3)})
    several = word_lexicon_graph([[[1, 2]], [np.array([1, 2])], np.array([[1, 3]])])
    assert ag.equal(single, several)
    # Words that sound alike are both read.
    words = ag.compose(ag.chain_graph([1, 2]), single)
    assert {string[1] for string in language(words)} == {(0,), (1,)}


def test_options():
    graph = word_lexicon_graph([[0]], calc_grad=True, dtype="float64")
    assert graph.calc_grad
    assert graph.dtype == np.float64
    assert not word_lexicon_graph([[0]]).calc_grad


@pytest.mark.parametrize(
    ("words", "weights", "message"),
    [
        ({"a": []}, None, "must have tokens, but word 'a' has an empty one"),
        ({"a": [[0], []]}, None, "must have tokens, but word 'a' has an empty one"),
        ([[[0, 1], [0, 1]]], None, r"must differ, but word 0 has \[0, 1\] twice"),
        ([[0, -1]], None, "tokens must be 0 or more, but word 0 has -1"),
        ([[0], [1]], [1.0], r"each of 2 pronunciations, but the shape of the weights is \(1,\)"),
    ],
)
def test_rejects(words, weights, message):
    with pytest.raises(ValueError, match=f"word_lexicon_graph: .*{message}"):
        word_lexicon_graph(words, weights=weights)
