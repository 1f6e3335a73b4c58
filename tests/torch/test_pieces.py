"""Losses of word pieces and n-grams of pieces, at the sizes they are used."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_cases import random

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens

SIZES = [200, 500, 1000, 1500]
LETTERS = "▁abcdefghijklmnopqrstuvwxyz"


def lexicon_of(size):
    """Letters and the most frequent strings of up to 5 letters in a random text."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, len(LETTERS) + 1)
    text = "".join(rng.choice(list(LETTERS), 20_000, p=weights / weights.sum()))
    found = Counter(text[k : k + n] for n in (2, 3, 4, 5) for k in range(len(text) - n + 1))
    longer = [piece for piece, _ in found.most_common(size - len(LETTERS))]
    return ag.lexicon.Lexicon([*LETTERS, *longer], first_label=1)


def loss_of(lexicon, transitions=None, **options):
    return agt.TransducerLoss(
        lexicon.pieces,
        lexicon,
        transitions,
        blank="optional",
        allow_repeats=False,
        reduction="none",
        **options,
    ).double()


class BackOff:
    """A back-off bigram as a graph, and as a table of its scores."""

    def __init__(self, num_labels, num_bigrams, seed=0):
        rng = np.random.default_rng(seed)
        pairs = np.sort(rng.choice(num_labels**2, num_bigrams, replace=False))
        bigrams = [divmod(pair, num_labels) for pair in pairs.tolist()]
        counts = dict.fromkeys([*((label,) for label in range(num_labels)), *bigrams], 1)
        self.graph = ag.ngram.backoff_graph(
            ag.ngram.Counts(counts, order=2, start=False, end=False),
            backoff="epsilon",
            calc_grad=False,
        )
        weights = rng.normal(size=self.graph.num_arcs()).astype(np.float32)
        self.graph.set_weights(weights)
        # Unigrams, bigrams, and the back-off of each label.
        self.first, direct, back = np.split(
            weights.astype(np.float64), [num_labels, num_labels + num_bigrams]
        )
        # A label follows directly, or after backing off; a path may back off at its end too.
        table = np.full((num_labels, num_labels), -np.inf)
        table.flat[pairs] = direct
        self.table = np.logaddexp(table, back[:, None] + self.first)
        self.end = np.logaddexp(0, back)

    def score(self, x, path):
        """The log-sum over all back-off paths that read a label sequence, with its emissions."""
        path = np.asarray(path)
        frames = x[np.arange(len(path)), path].sum()
        return (
            frames
            + self.first[path[0]]
            + self.table[path[:-1], path[1:]].sum()
            + self.end[path[-1]]
        )

    def total(self, x):
        """The log-sum over all paths."""
        alpha = self.first + x[0]
        for frame in x[1:]:
            alpha = np.logaddexp.reduce(alpha[:, None] + self.table, axis=0) + frame
        return np.logaddexp.reduce(alpha + self.end)


def ctc_paths(target, num_frames):
    """All frames that CTC reads as a target."""
    for path in itertools.product([0, *dict.fromkeys(target)], repeat=num_frames):
        runs = [label for label, _ in itertools.groupby(path)]
        if [label for label in runs if label] == target:
            yield path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ["a", "aba", "baab"])
def test_the_loss_sums_over_all_decompositions(size, text):
    """Against torch's own loss of each decomposition."""
    lexicon = lexicon_of(size)
    ways = list(lexicon.enumerate(text))
    assert len(ways) == lexicon.count(text) >= len(text)
    x = random(6, size + 1).requires_grad_()
    log_probs = x.log_softmax(-1)[:, None]
    parts = [
        F.ctc_loss(log_probs, torch.tensor([way]), [6], [len(way)], reduction="sum") for way in ways
    ]
    expected = -torch.stack([-part for part in parts if part.isfinite()]).logsumexp(0)
    actual = loss_of(lexicon)(x[None], [text])[0]
    assert torch.allclose(actual, expected, rtol=1e-12)
    ours, theirs = (torch.autograd.grad(value, x)[0] for value in (actual, expected))
    assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ["ab", "aba"])
def test_the_loss_with_transitions_sums_over_all_decompositions(size, text):
    """Against the sum over all frames that spell the text, and the sum over all frames."""
    lexicon = lexicon_of(size)
    bigram = BackOff(size + 1, 2 * size)
    x = random(5, size + 1, seed=size)
    array = x.numpy()
    scores = [
        bigram.score(array, path)
        for way in lexicon.enumerate(text)
        for path in ctc_paths(way, len(array))
    ]
    expected = bigram.total(array) - np.logaddexp.reduce(scores)
    loss = loss_of(lexicon, bigram.graph)
    assert loss(x[None], [text]).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["none", "back-off", "dense"])
def test_single_precision_is_accurate(size, kind):
    lexicon = lexicon_of(size)
    rng = np.random.default_rng(size)
    texts = ["".join(rng.choice(lexicon.pieces, count)) for count in (15, 1, 6)]
    transitions = {"none": None, "back-off": BackOff(size + 1, 2 * size).graph, "dense": 2}[kind]
    exact = loss_of(lexicon, transitions)
    rough = loss_of(lexicon, transitions).float()
    x = random(3, 60, size + 1).requires_grad_()
    y = x.detach().float().requires_grad_()
    values = [loss(z, texts, lengths=[60, 7, 41]) for loss, z in ((exact, x), (rough, y))]
    assert values[1].dtype is torch.float32
    assert torch.allclose(values[0], values[1].double(), rtol=1e-6)
    for value in values:
        value.sum().backward()
    assert (x.grad - y.grad).abs().max() < 2e-6
    assert (y.grad[1, 7:] == 0).all()
    if kind != "none":
        one, two = exact.transitions.grad, rough.transitions.grad
        assert one.abs().max() > 0
        assert ((one - two).abs() <= 2e-6 * one.abs().clamp_min(1)).all()


def test_texts_that_pieces_cannot_spell_have_infinite_loss():
    lexicon = ag.lexicon.Lexicon(["ab", "b"], graphemes="ab", first_label=1)
    loss = loss_of(lexicon, BackOff(3, 4).graph)
    x = random(2, 4, 3).requires_grad_()
    values = loss(x, ["abb", "aab"])
    assert values[0].isfinite()
    assert values[1] == math.inf
    values.sum().backward()
    assert (x.grad[1] == 0).all()
    assert loss.explain_infeasible(x, ["abb", "aab"]) == {1: "the target has no alignment at all"}


# Transitions from files, and of other graphs


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_a_language_model_from_a_file_as_transitions(name, tmp_path):
    symbols = ["a", "b", "c"]
    counts = ag.ngram.count(["abac", "bca", "ab", "cc", "abab"], 2, symbols=symbols)
    model = ag.ngram.estimate(counts, "katz")
    ag.ngram.save_arpa(model, tmp_path / name)
    graph = ag.ngram.load_arpa(tmp_path / name, symbols=symbols).graph(dtype="float64")
    loss = agt.TransducerLoss(
        Tokens(3, max_frames=1), transitions=graph, learn_transitions=False, reduction="none"
    )
    assert not list(loss.parameters())
    x = random(1, 3, 3).requires_grad_()

    def score(labels):
        frames = sum(x[0, t, label] for t, label in enumerate(labels))
        language = ag.forward_score(ag.intersect(graph, ag.chain_graph(labels))).item()
        # An n-gram can be read by backing off as well, so the sum is at least its probability.
        assert language >= model.score(labels) - 1e-5
        return frames + language

    everything = torch.stack([score(p) for p in itertools.product(range(3), repeat=3)])
    for target in ([0, 1, 0], [2, 2, 1]):
        expected = everything.logsumexp(0) - score(target)
        actual = loss(x, [target])[0]
        assert torch.allclose(actual, expected, rtol=1e-8)
        ours, theirs = (
            torch.autograd.grad(value, x, retain_graph=True)[0] for value in (actual, expected)
        )
        assert torch.allclose(ours, theirs, atol=1e-10)


def test_learned_back_off_weights_belong_to_their_n_grams():
    def loss(text):
        counts = ag.ngram.count(text, 2, symbols=["a", "b", "c"])
        return agt.TransducerLoss(Tokens.asg(3), transitions=ag.ngram.backoff_graph(counts))

    first, again, *others = (loss(text) for text in (["abc"], ["abc"], ["cba"], ["abcab"]))
    torch.nn.init.normal_(first.transitions)
    again.load_state_dict(first.state_dict())
    assert torch.equal(again.transitions, first.transitions)
    assert others[0].transitions.shape == first.transitions.shape
    for other in others:
        with pytest.raises(RuntimeError, match="so the graph must be the one they were saved with"):
            other.load_state_dict(first.state_dict())
        assert (other.transitions == 0).all()
