"""`Tokens.collapse`: the tokens that frames spell."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_rules import kinds, spellings

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
    alignment_graph,
)


@given(st.data(), kinds(), st.integers(0, 6))
def test_collapse_finds_the_shortest_spelling(data, tokens, length):
    frames = data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    found = spellings(tokens, frames)
    if not found:
        with pytest.raises(ValueError, match=r"collapse: .* must .*, but "):
            tokens.collapse(frames)
        return
    fewest = min(map(len, found))
    (expected,) = [y for y in found if len(y) == fewest]
    assert tokens.collapse(frames) == list(expected)
    if not tokens.allow_repeats:
        assert list(found.items()) == [(expected, 1)]


@given(st.data(), kinds())
def test_collapse_undoes_an_alignment(data, tokens):
    frames = data.draw(st.lists(st.integers(0, 2), max_size=5))
    if not spellings(tokens, frames):
        return
    graph = alignment_graph(tokens, tokens.collapse(frames))
    assert ag.forward_score(ag.intersect(graph, ag.chain_graph(frames))).item() > -math.inf


def test_collapse_of_several_sequences():
    tokens = Tokens.ctc(3)
    rows = [[1, 1, 0, 1], [0, 0, 0, 0], [2, 1, 1, 2]]
    expected = [[1, 1], [], [2, 1, 2]]
    assert tokens.collapse(rows) == expected
    assert tokens.collapse(np.array(rows)) == expected
    assert tokens.collapse(np.array(rows), lengths=[4, 2, 1]) == [[1, 1], [], [2]]
    assert tokens.collapse(np.array(rows).ravel(), lengths=[4, 4, 4]) == expected
    assert tokens.collapse([]) == []
    assert tokens.collapse(np.array(rows[0], np.int32)) == expected[0]


@pytest.mark.parametrize(
    ("tokens", "frames", "message"),
    [
        (Tokens.ctc(3), [1, 3], "a label of the frames must be 0 to 2, but label 1 is 3"),
        (Tokens.ctc(3), [-1], "a label of the frames must be 0 to 2, but label 0 is -1"),
        (
            Tokens(3, blank="optional", allow_repeats=False, max_frames=2),
            [0, 1, 1, 1],
            "a run of label 1 must be one token of 1 to 2 frames, but the one at frame 1 has 3",
        ),
        (
            Tokens(3, min_frames=3, max_frames=4),
            [1] * 5,
            "a run of label 1 must be one token of 3 to 4 frames or several, "
            "but the one at frame 0 has 5",
        ),
        (
            Tokens(3, min_frames=2),
            [1, 1, 2],
            "a run of label 2 must be one token of 2 or more frames or several, "
            "but the one at frame 2 has 1",
        ),
        (
            Tokens.spaced(3, 2, 3),
            [0, 1, 0, 1],
            "there must be 2 to 3 blanks between tokens, but there are 1 before frame 3",
        ),
        (
            Tokens.spaced(3, 2, 2),
            [1, 0, 0, 0, 2],
            "there must be 2 blanks between tokens, but there are 3 before frame 4",
        ),
        (
            Tokens(3, blank="forced"),
            [0, 1, 2, 0],
            "there must be 1 or more blanks between tokens, but there are 0 before frame 2",
        ),
        (
            Tokens(3, blank="forced"),
            [0, 1],
            r"frames must begin and end with the blank \(0\), but they begin with 0 and end with 1",
        ),
        (
            Tokens(3, blank="forced"),
            [],
            r"frames must begin and end with the blank \(0\), but there are none",
        ),
    ],
)
def test_frames_that_spell_no_tokens_are_named(tokens, frames, message):
    with pytest.raises(ValueError, match=f"collapse: {message}"):
        tokens.collapse(frames)
    with pytest.raises(ValueError, match=rf"collapse \(element 1 of 2\): {message}"):
        tokens.collapse([[0] if tokens.blank == "forced" else [], frames])
