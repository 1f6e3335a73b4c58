"""A definition of alignments by enumeration, and random token rules."""

import itertools
from collections import Counter

import pytest
from hypothesis import strategies as st

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
)

eps = ag.epsilon


def within(number, least, most):
    return least <= number and (most is None or number <= most)


def gaps_fit(tokens, runs):
    """Whether the numbers of blanks before, between and after the tokens of `runs` are allowed."""
    forced = tokens.blank == "forced"
    if forced and not (runs and runs[0][0] == runs[-1][0] == tokens.blank_label):
        return False
    last, num_blanks = None, 0
    for label, *rest in runs:
        if label == tokens.blank_label:
            num_blanks += 1 + len(rest)
            continue
        if last is not None:
            if not within(num_blanks, tokens.min_blanks, tokens.max_blanks):
                return False
            if num_blanks == 0 and (forced or (label == last and not tokens.allow_repeats)):
                return False
        last, num_blanks = label, 0
    return True


def is_alignment(tokens, runs):
    for run in runs:
        if len(set(run)) > 1:
            return False
        limits = tokens.overrides.get(run[0], (tokens.min_frames, tokens.max_frames))
        if run[0] != tokens.blank_label and not within(len(run), *limits):
            return False
    # All blanks in a row are one run.
    blank = (tokens.blank_label,)
    if any(a[:1] == b[:1] == blank for a, b in itertools.pairwise(runs)):
        return False
    return gaps_fit(tokens, runs)


def spellings(tokens, frames):
    """The number of ways to cut `frames` into each sequence of tokens."""
    found = Counter()
    for cuts in itertools.product([False, True], repeat=max(len(frames) - 1, 0)):
        ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(frames)]
        runs = [tuple(frames[a:b]) for a, b in itertools.pairwise(ends) if a < b]
        if is_alignment(tokens, runs):
            found[tuple(run[0] for run in runs if run[0] != tokens.blank_label)] += 1
    return found


def all_frames(num_labels, length):
    return itertools.product(range(num_labels), repeat=length)


def blank_kinds(blank):
    """Options of blanks, with all kinds of limits between tokens."""
    if blank == "none":
        return st.just({})
    lowest = 1 if blank == "forced" else 0
    limits = st.tuples(st.integers(0, 2), st.none() | st.integers(lowest, 3))
    limits = limits.filter(lambda pair: pair[1] is None or pair[1] >= pair[0])
    allow_repeats = st.booleans()

    def options(pair, label, repeats):
        repeats = repeats or pair[1] == 0
        return {
            "blank_label": label,
            "allow_repeats": repeats,
            "min_blanks": pair[0],
            "max_blanks": pair[1],
        }

    return st.builds(options, limits, st.integers(0, 2), allow_repeats)


def durations():
    limits = st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3))
    return limits.filter(lambda pair: pair[1] is None or pair[1] >= pair[0])


@st.composite
def kinds(draw, num_labels=3):
    blank = draw(st.sampled_from(["none", "forced", "optional"]))
    options = draw(blank_kinds(blank))
    min_frames, max_frames = draw(st.just((1, None)) | durations())
    labels = [c for c in range(num_labels) if c != options.get("blank_label")]
    overrides = draw(st.dictionaries(st.sampled_from(labels), durations(), max_size=2))
    return Tokens(
        num_labels,
        blank=blank,
        min_frames=min_frames,
        max_frames=max_frames,
        overrides=overrides,
        **options,
    )


PRESETS = [
    Tokens.asg(3),
    Tokens.ctc(3),
    Tokens.ctc(3, 2),
    Tokens.spike(3),
    Tokens.limited(3, 2),
    Tokens.spaced(3, 2, 3),
    Tokens.spaced(3, 0, 1, blank_label=1),
    Tokens(3, blank="forced"),
    Tokens(3, blank="forced", min_blanks=2, max_blanks=2),
    Tokens(3, blank="optional"),
    Tokens(3, blank="optional", allow_repeats=False, max_blanks=2),
    Tokens(3, blank="optional", allow_repeats=False, max_frames=2, overrides={2: (2, None)}),
    Tokens(3, max_frames=2, overrides={0: (1, 1), 1: (2, None)}),
    Tokens(3, blank="optional", max_blanks=0),
]
every_preset = pytest.mark.parametrize("tokens", PRESETS, ids=repr)


def frames_of(length, num_labels, **options):
    return ag.linear_graph(length, num_labels, dtype="float64", **options)
