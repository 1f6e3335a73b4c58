"""Dense n-gram graphs: one arc per n-gram, with learnable weights."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import build, snapshot

import arcgrad as ag
from arcgrad import ngram


def histories(num_tokens, order):
    """The documented order of the nodes."""
    return [
        tokens
        for length in range(order)
        for tokens in itertools.product(range(num_tokens), repeat=length)
    ]


def definition(num_tokens, order, weights, sequence):
    """The sum of the scores of the n-grams of a sequence."""
    rows = {history: k for k, history in enumerate(histories(num_tokens, order))}
    total = 0.0
    for k, token in enumerate(sequence):
        history = sequence[max(0, k - order + 1) : k]
        total += weights[rows[history] * num_tokens + token]
    return total


def test_figure_4a():
    a, b, c = 0, 1, 2
    arcs = [(0, a + 1, a), (0, b + 1, b), (0, c + 1, c)]
    arcs += [(s + 1, d + 1, d) for s in (a, b, c) for d in (a, b, c)]
    expected = build(4, {0}, {0, 1, 2, 3}, [(*arc, arc[2], 0.0) for arc in arcs], dtype="float32")
    assert snapshot(ngram.dense_graph(3, 2)) == snapshot(expected)


def test_one_node_for_order_1():
    graph = ngram.dense_graph(2, 1)
    assert snapshot(graph) == snapshot(
        build(1, {0}, {0}, [(0, 0, 0, 0, 0.0), (0, 0, 1, 1, 0.0)], dtype="float32")
    )


def test_end_scores_are_epsilon_arcs_after_all_other_arcs():
    graph = ngram.dense_graph(3, 2, end_scores=True)
    assert (graph.num_nodes(), graph.num_arcs()) == (3 + 2, 3 + 9 + (3 + 1))
    assert graph.accept().tolist() == [4]
    assert graph.src_nodes()[12:].tolist() == [0, 1, 2, 3]
    assert set(graph.dst_nodes()[12:].tolist()) == {4}
    assert set(graph.ilabels()[12:].tolist()) == {ag.epsilon}
    assert graph.ilabels()[:12].min() == 0


@pytest.mark.parametrize("end_scores", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("num_tokens", [1, 2, 3])
def test_sizes_equal_the_paper(num_tokens, order, end_scores):
    graph = ngram.dense_graph(num_tokens, order, end_scores=end_scores)
    num_nodes = sum(num_tokens**k for k in range(order))
    assert graph.num_nodes() == num_nodes + end_scores
    assert graph.num_arcs() == num_nodes * (num_tokens + end_scores)


@given(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.data())
def test_scores_are_sums_over_ngrams(num_tokens, order, end_scores, data):
    graph = ngram.dense_graph(num_tokens, order, end_scores=end_scores, dtype="float64")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    graph.set_weights(rng.normal(size=graph.num_arcs()))
    weights = graph.weights_to_list()
    sequence = tuple(data.draw(st.lists(st.integers(0, num_tokens - 1), max_size=6)))
    expected = definition(num_tokens, order, weights, sequence)
    if end_scores:
        nodes = histories(num_tokens, order)
        last = sequence[max(0, len(sequence) - order + 1) :]
        expected += weights[len(nodes) * num_tokens + nodes.index(last)]
    product = ag.intersect(graph, ag.chain_graph(sequence, dtype="float64"))
    assert ag.forward_score(product).item() == pytest.approx(expected, abs=1e-9)
    # There is one path for each sequence.
    assert ag.viterbi_score(product).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("end_scores", [False, True])
def test_a_bigram_uses_the_dense_kernel(end_scores):
    graph = ngram.dense_graph(20, 2, end_scores=end_scores)
    assert ag.explain(ag.intersect(graph, ag.linear_graph(7, 20))).kernel == "dense"


def test_weights_are_parameters():
    graph = ngram.dense_graph(3, 2, dtype="float64")
    assert graph.calc_grad
    assert graph.dtype == np.float64
    emissions = ag.linear_graph(4, 3, np.zeros((4, 3)), calc_grad=False)
    ag.backward(ag.forward_score(ag.intersect(graph, emissions)))
    # All sequences are alike, and four n-grams make up each.
    gradient = graph.grad().weights_to_numpy()
    assert gradient[:3] == pytest.approx(np.full(3, 1 / 3))
    assert gradient[3:] == pytest.approx(np.full(9, 3 / 9))
    assert not ngram.dense_graph(3, 2, calc_grad=False).calc_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2), "dense_graph: num_tokens must be 1 or more, but it is 0"),
        ((3, 0), "dense_graph: the order must be 1 or more, but it is 0; without transitions"),
        ((3, -1), "the order must be 1 or more, but it is -1"),
        ((1000, 4), "at most 2147483647 arcs, but 1000 tokens and order 4 need 1001001001000;"),
        ((2, 1000), "but 2 tokens and order 1000 need more; use backoff_graph"),
    ],
)
def test_rejects_invalid_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        ngram.dense_graph(*arguments)
