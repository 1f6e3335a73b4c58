"""Beam search through compositions that are made on the way."""

import math

import numpy as np
import pytest

import arcgrad as ag
from arcgrad.tokens import Tokens

WORDS = [[0, 1], [0, 2], [1], [2, 2]]


def emissions(seed, frames=8, labels=4):
    values = np.random.default_rng(seed).normal(size=(frames, labels)) * 2
    return ag.linear_graph(frames, labels, values, dtype="float64")


def random_graph(rng, nodes, labels, arcs, epsilon=0.2):
    """A transducer with epsilons on both sides, whose epsilon arcs form no cycle."""
    graph = ag.Graph(dtype="float64")
    for i in range(nodes):
        graph.add_node(start=i == 0, accept=bool(rng.random() < 0.5) or i == nodes - 1)
    for _ in range(arcs):
        ilabel, olabel = (
            ag.epsilon if rng.random() < epsilon else int(rng.integers(labels)) for _ in range(2)
        )
        a, b = rng.integers(nodes, size=2).tolist()
        if ag.epsilon in (ilabel, olabel):
            if a == b:
                continue
            a, b = min(a, b), max(a, b)
        graph.add_arc(a, b, ilabel, olabel, rng.normal())
    return graph


def grammar(seed, backoff="failure"):
    rng = np.random.default_rng(seed)
    lines = [[str(w) for w in rng.integers(len(WORDS), size=4)] for _ in range(12)]
    counts = ag.ngram.count(lines, 2, symbols=[str(w) for w in range(len(WORDS))])
    model = ag.ngram.estimate(counts)
    return model.graph(backoff=backoff, calc_grad=True, dtype="float64")


def cascade(seed, backoff="failure"):
    tokens = Tokens.ctc(4, 3).graph()
    words = ag.closure(ag.lexicon.word_lexicon_graph(WORDS))
    return [tokens, words, grammar(seed, backoff)]


def lazy_of(graphs):
    lazy = ag.compose(*graphs[:2], lazy=True)
    for graph in graphs[2:]:
        lazy = ag.compose(lazy, graph, lazy=True)
    return lazy


def strings(lattice, n=10**4):
    """The scores of all strings of a lattice, by its best paths."""
    found = {}
    for path in ag.best_paths(lattice, n, unique=True):
        labels = tuple(x for x in path.labels_to_list(ilabel=False) if x >= 0)
        found[labels] = ag.viterbi_score(path).item()
    return found


@pytest.mark.parametrize("seed", range(40))
def test_equal_to_the_built_graph(seed):
    rng = np.random.default_rng(seed)
    graphs = [random_graph(rng, 4, 3, 10) for _ in range(2 + seed % 2)]
    x = emissions(seed, frames=4, labels=3)
    lazy = lazy_of(graphs)
    built = ag.beam_search(lazy.build(), x)
    found = ag.beam_search(lazy, x)
    expected = ag.forward_score(built).item()
    assert ag.viterbi_score(found).item() == pytest.approx(ag.viterbi_score(built).item())
    # Each pair of paths appears once.
    assert ag.forward_score(found).item() == pytest.approx(expected)
    if expected > -math.inf:
        assert strings(found) == pytest.approx(strings(built))


@pytest.mark.parametrize("backoff", ["failure", "epsilon"])
@pytest.mark.parametrize("beam", [2.0, 5.0, math.inf])
def test_a_cascade_of_tokens_words_and_a_grammar(backoff, beam):
    for seed in range(6):
        x = emissions(seed)
        lazy = lazy_of(cascade(seed, backoff))
        found = ag.beam_search(lazy, x, beam=beam)
        expected = ag.beam_search(lazy.build(), x, beam=beam)
        assert ag.viterbi_score(found).item() == pytest.approx(ag.viterbi_score(expected).item())
        if beam == math.inf:
            assert ag.forward_score(found).item() == pytest.approx(
                ag.forward_score(expected).item()
            )


def test_gradients():
    graphs, x = cascade(1), emissions(1)
    ag.backward(ag.forward_score(ag.beam_search(lazy_of(graphs), x)))
    found = [graph.grad().weights_to_numpy() for graph in (graphs[2], x)]
    for graph in (graphs[2], x):
        graph.zero_grad()
    ag.backward(ag.forward_score(ag.beam_search(lazy_of(graphs).build(), x)))
    expected = [graph.grad().weights_to_numpy() for graph in (graphs[2], x)]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-9)
    assert np.abs(found[0]).sum() > 0


def test_only_what_the_beam_reaches_is_made():
    """A cascade whose composition has millions of arcs is searched in a small memory."""
    rng = np.random.default_rng(0)
    words = [list(rng.integers(20, size=6)) for _ in range(3000)]
    lexicon = ag.closure(ag.lexicon.word_lexicon_graph(words))
    loop = ag.ngram.dense_graph(3000, 2)
    loop.set_weights(rng.normal(size=loop.num_arcs()))
    lazy = lazy_of([Tokens.ctc(21, 20).graph(), lexicon, loop])
    x = ag.linear_graph(12, 21, rng.normal(size=(12, 21)) * 4)
    lattice = ag.beam_search(lazy, x, max_active=20)
    assert ag.viterbi_score(lattice).item() > -math.inf


def test_batches():
    lazy = lazy_of(cascade(2))
    x = [emissions(seed) for seed in range(3)]
    found = ag.beam_search(lazy, x, beam=5.0)
    assert [ag.equal(a, ag.beam_search(lazy, b, beam=5.0)) for a, b in zip(found, x, strict=True)]
    assert len(lazy.graphs) == 3
    assert repr(lazy) == "LazyComposition of 3 graphs"
    assert ag.compose(*cascade(2)[:2], lazy=False).num_nodes() > 0


def test_refused():
    graphs = cascade(3)
    with pytest.raises(ValueError, match="must be composed with lazy=True, but it is False"):
        ag.compose(lazy_of(graphs), graphs[0], lazy=False)
    weighted = ag.Graph(dtype="float64")
    weighted.add_node(start=True, accept=True, accept_weight=1.0)
    with pytest.raises(ValueError, match="must have no weights of nodes, but graph 1 has them"):
        ag.beam_search(lazy_of([graphs[0], weighted]), emissions(0))
    with pytest.raises(ValueError, match="failure"):
        ag.beam_search(lazy_of([graphs[2], graphs[0]]), emissions(0))
    with pytest.raises(ValueError, match="must be a dense linear graph"):
        ag.beam_search(lazy_of(graphs), graphs[0])
    bad = ag.linear_graph(1, 4, np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match="must be finite or -inf"):
        ag.beam_search(lazy_of(graphs), bad)
    with pytest.raises(TypeError):
        ag.forward_score(lazy_of(graphs))
