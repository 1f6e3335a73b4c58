"""Tasks decoded with other programs; `scripts/make_decoder_oracles.py` writes the results."""

import json
from pathlib import Path

import numpy as np

import arcgrad as ag

FILE = Path(__file__).with_name("decoder_oracles.json")
LABELS = ["", " ", *"abc"]
WORDS = ["a", "ab", "abc", "ba", "bab", "cab", "cc", "bacabab"]

# Calls of pyctcdecode: whether there is a language model, arguments of build_ctcdecoder and of
# decode_beams.
HOTWORDS = {"hotwords": ["cab ba", "cac"], "hotword_weight": 4.0}
PYCTCDECODE = {
    "model": (True, {"alpha": 0.8, "beta": 0.5}, {}),
    "few unigrams": (True, {"unigrams": WORDS[:4], "alpha": 0.8, "beta": 0.5}, {}),
    "no model": (False, {}, {}),
    "hotwords": (True, {"alpha": 0.6, "beta": 1.0}, HOTWORDS),
    "hotwords, no model": (False, {}, HOTWORDS),
    "no boundary": (True, {"lm_score_boundary": False, "unk_score_offset": -3.0}, {}),
    "narrow": (True, {}, {"beam_width": 10, "beam_prune_logp": -6.0, "token_min_logp": -3.0}),
    "wide": (True, {}, {"beam_width": 400, "beam_prune_logp": -30.0, "token_min_logp": -20.0}),
}
# Options of flashlight's decoder with a lexicon: weights of the model, of words and of silences,
# and whether scores are added.
FLASHLIGHT = {
    "model": (2.0, 0.5, 0.0, False),
    "silence": (1.0, -0.3, -0.4, False),
    "no model": (0.0, 0.2, 0.1, False),
}


def save_model(path):
    """A 3-gram model of the words, in which each word has a back-off weight."""
    rng = np.random.default_rng(3)
    lines = [list(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(60)]
    model = ag.ngram.estimate(ag.ngram.count(lines, 3), "kneser_ney", unknown=True)
    ag.ngram.save_arpa(model, path)


def examples():
    """Logarithms of probabilities, in float64."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        text = " ".join(rng.choice(WORDS, 4)) + ("" if seed % 2 else " ")
        frames = [LABELS.index(c) for letter in text for c in (letter, "")]
        scores = 1.4 * rng.normal(size=(len(frames), len(LABELS)))
        scores[np.arange(len(frames)), frames] += 2.5
        found.append(scores - np.log(np.exp(scores).sum(1, keepdims=True)))
    return found


def load():
    """The results of the other programs."""
    return json.loads(FILE.read_text())
