"""Small decoding tasks: four labels, five words, random scores and models."""

import math

import numpy as np

import arcgrad as ag

ALL = {"beam": math.inf, "max_active": 10**6}
LABELS = ["", "|", "a", "b"]
LEXICON = {"a": ["a"], "ab": ["ab"], "ba": ["ba", "bba"], "A": ["a"], "abab": ["abab"]}


def scores(seed, frames=6, labels=4):
    x = np.random.default_rng(seed).normal(size=(frames, labels)) * 2
    return (x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32)


def model(order, words=("a", "ab", "ba", "A", "abab")):
    rng = np.random.default_rng(order)
    lines = [list(rng.choice(words, rng.integers(0, 4))) for _ in range(30)]
    return ag.ngram.estimate(ag.ngram.count(lines, order), "kneser_ney", unknown=True)
