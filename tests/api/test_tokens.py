"""`arcgrad.tokens.Tokens`: construction, comparison, pickling, and invalid options."""

import copy
import pickle

import pytest
from hypothesis import given
from token_rules import (
    PRESETS,
    kinds,
)
from tools import snapshot

from arcgrad.tokens import (
    Tokens,
)

# The class


@given(kinds())
def test_tokens_can_be_compared_copied_pickled_and_read_back(tokens):
    copies = [
        copy.copy(tokens),
        copy.deepcopy(tokens),
        pickle.loads(pickle.dumps(tokens)),
        eval(repr(tokens)),
    ]
    for other in copies:
        assert other == tokens
        assert hash(other) == hash(tokens)
        assert repr(other) == repr(tokens)
        assert snapshot(other.graph()) == snapshot(tokens.graph())
    assert tokens != Tokens.asg(17)
    assert tokens != "tokens"


def test_different_tokens_are_not_equal():
    assert len(set(PRESETS)) == len(PRESETS)
    assert Tokens.ctc(3) != Tokens.ctc(4)
    assert Tokens(3, blank_label=2) == Tokens(3)  # there is no blank


def test_repr_of_tokens_is_their_constructor_call():
    tokens = Tokens(
        5,
        blank="optional",
        blank_label=4,
        allow_repeats=False,
        min_frames=2,
        max_frames=3,
        min_blanks=1,
        max_blanks=6,
        overrides={2: (1, None)},
    )
    assert (tokens.num_labels, tokens.blank, tokens.blank_label) == (5, "optional", 4)
    assert not tokens.allow_repeats
    assert (tokens.min_frames, tokens.max_frames) == (2, 3)
    assert (tokens.min_blanks, tokens.max_blanks) == (1, 6)
    assert tokens.overrides == {2: (1, None)}
    assert repr(tokens) == (
        "Tokens(5, blank='optional', blank_label=4, allow_repeats=False, min_frames=2, "
        "max_frames=3, min_blanks=1, max_blanks=6, overrides={2: (1, None)})"
    )
    assert repr(Tokens.asg(3)) == "Tokens(3)"
    assert Tokens.asg(3).blank_label is None


def test_tokens_are_immutable():
    tokens = Tokens.ctc(3)
    with pytest.raises(AttributeError):
        tokens.num_labels = 4
    tokens.overrides[1] = (2, 2)
    assert tokens.overrides == {}


def test_named_constructors_set_their_options():
    assert Tokens.asg(3) == Tokens(3)
    assert Tokens.ctc(3, 1) == Tokens(3, blank="optional", blank_label=1, allow_repeats=False)
    assert Tokens.spike(3) == Tokens(3, blank="optional", max_frames=1)
    assert Tokens.limited(3) == Tokens(3, blank="optional", max_frames=2)
    assert Tokens.limited(3, 5, min_frames=2, blank_label=1) == Tokens(
        3, blank="optional", blank_label=1, min_frames=2, max_frames=5
    )
    assert Tokens.spaced(3, 1, None) == Tokens(3, blank="optional", min_blanks=1)


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_labels": 0}, "there must be 1 label or more, but there are 0"),
        ({"num_labels": 2**31}, "the number of labels must fit 32 bits, but it is 2147483648"),
        ({"blank": "maybe"}, "blank must be 'none', 'forced' or 'optional', but it is 'maybe'"),
        (
            {"blank": "optional", "blank_label": 3},
            "the blank must be one of the 3 labels, but it is 3",
        ),
        ({"blank": "forced", "blank_label": -1}, ".* the 3 labels, but it is -1"),
        (
            {"allow_repeats": False},
            "without repeats equal tokens need a blank between them, but blank is 'none'",
        ),
        ({"min_frames": 0}, "the least number of frames must be 1 or more, but it is 0"),
        (
            {"min_frames": 3, "max_frames": 2},
            "the most frames must not be fewer than the least, but they are 2 and 3",
        ),
        ({"max_frames": 0}, "the most frames must not be fewer .* 0 and 1"),
        (
            {"blank": "optional", "min_blanks": -1},
            "the least number of blanks must be 0 or more, but it is -1",
        ),
        (
            {"blank": "optional", "min_blanks": 3, "max_blanks": 2},
            "the most blanks must not be fewer than the least, but they are 2 and 3",
        ),
        (
            {"max_blanks": 2},
            "limits on the number of blanks need a blank, but blank is 'none' and the limits are "
            "0 to 2",
        ),
        (
            {"blank": "forced", "max_blanks": 0},
            "a forced blank needs room for a blank between tokens, but at most 0 are allowed",
        ),
        (
            {"blank": "optional", "allow_repeats": False, "max_blanks": 0},
            "disallowing repeats needs room for a blank between tokens, but at most 0 are allowed",
        ),
        (
            {"overrides": {3: (1, 2)}},
            "overrides must be for labels that are 0 to 2, but one is for 3",
        ),
        (
            {"blank": "optional", "overrides": {0: (1, 2)}},
            r"overrides must be for labels that are 0 to 2 and not the blank \(0\), "
            "but one is for 0",
        ),
        (
            {"overrides": {1: (2, 1)}},
            "the most frames of token 1 must not be fewer than the least, but they are 1 and 2",
        ),
        ({"overrides": {1: (0, 1)}}, "the least number of frames of token 1 must be 1 or more"),
    ],
)
def test_invalid_tokens_are_errors(options, message):
    with pytest.raises(ValueError, match=f"Tokens: {message}"):
        Tokens(**{"num_labels": 3} | options)


@pytest.mark.parametrize("overrides", [3, [1, 2], {1: 2}, {"a": (1, 2)}, {1: (None, 2)}])
def test_overrides_must_map_labels_to_pairs(overrides):
    with pytest.raises(TypeError, match=r"Tokens: overrides must .*, but "):
        Tokens(3, overrides=overrides)
