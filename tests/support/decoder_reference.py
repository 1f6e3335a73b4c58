"""The meaning of decoding: all label sequences of a few frames, and the texts they spell."""

import itertools
import math

import numpy as np


def logadd(values):
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(v - top) for v in values))


def collapse(frames, blank):
    """The tokens of CTC."""
    tokens, last = [], blank
    for label in frames:
        if label not in (last, blank):
            tokens.append(label)
        last = label
    return tuple(tokens)


def tokens_of(log_probs, blank, merge):
    """The score of each token sequence."""
    found = {}
    frames, labels = log_probs.shape
    for path in itertools.product(range(labels), repeat=frames):
        score = sum(log_probs[t, c] for t, c in enumerate(path))
        found.setdefault(collapse(path, blank), []).append(score)
    return {tokens: merge(scores) for tokens, scores in found.items()}


def words_of(tokens, lexicon, separator, is_open):
    """All word sequences that tokens spell; an unknown word is its tuple of tokens.

    `lexicon` maps a word to a list of spellings. Without a separator words follow each other.
    """
    by_spelling = {}
    for word, ways in lexicon.items():
        for way in ways:
            by_spelling.setdefault(tuple(way), []).append(word)
    if separator is None:
        if not tokens:
            return [()]
        return [
            (word, *rest)
            for k in range(1, len(tokens) + 1)
            for word in by_spelling.get(tokens[:k], ())
            for rest in words_of(tokens[k:], lexicon, separator, is_open)
        ]
    parts = [
        tuple(group)
        for is_gap, group in itertools.groupby(tokens, lambda c: c == separator)
        if not is_gap
    ]
    choices = [by_spelling.get(part, [part] if is_open else []) for part in parts]
    return list(itertools.product(*choices))


def num_silences(tokens, separator):
    """The number of separators that end no word."""
    before = [separator, *tokens]
    return sum(a == b == separator for a, b in itertools.pairwise(before))


def occurrences(tokens, phrase, separator):
    """How often a phrase, a list of spelled words, occurs as whole words."""
    if separator is None:
        flat = [c for word in phrase for c in word]
        return sum(list(tokens[k : k + len(flat)]) == flat for k in range(len(tokens)))
    # A gap of any width counts once.
    words = [
        tuple(group)
        for is_gap, group in itertools.groupby(tokens, lambda c: c == separator)
        if not is_gap
    ]
    wanted = [tuple(word) for word in phrase]
    return sum(words[k : k + len(wanted)] == wanted for k in range(len(words)))


def decode(
    log_probs,
    lexicon,
    *,
    blank=0,
    separator=None,
    is_open=False,
    merge=max,
    language=lambda words: 0.0,
    alpha=1.0,
    beta=0.0,
    unknown_score=0.0,
    silence_score=0.0,
    hotwords=(),
):
    """The score of each word sequence. `hotwords` has pairs of a phrase and its boost."""
    found = {}
    for tokens, acoustic in tokens_of(np.asarray(log_probs), blank, merge).items():
        if acoustic == -math.inf:
            continue
        gaps = num_silences(tokens, separator) if separator is not None else 0
        boost = sum(b * occurrences(tokens, phrase, separator) for phrase, b in hotwords)
        for words in words_of(tokens, lexicon, separator, is_open):
            unknown = sum(isinstance(word, tuple) for word in words)
            score = (
                acoustic
                + alpha * language(words)
                + beta * len(words)
                + unknown_score * unknown
                + silence_score * gaps
                + boost
            )
            if score > -math.inf:
                found.setdefault(words, []).append(score)
    scores = {words: merge(values) for words, values in found.items()}
    return sorted(scores.items(), key=lambda item: -item[1])
