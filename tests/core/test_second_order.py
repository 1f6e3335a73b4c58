"""Derivatives of second order: gradients of gradients, and hvp."""

import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, like
from hypothesis import given
from strategies import acceptors, graphs
from tools import build, weights, with_dtype, with_weights

import arcgrad as ag


@pytest.fixture
def graph():
    """Two paths: 0 1 and 2."""
    return build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25), (0, 2, 2, 2, 1.0)])


@pytest.fixture
def other(graph):
    return with_weights(graph, [0.125, -0.5, 2.0])


def values(*graphs_):
    return [weights(g).tolist() for g in graphs_]


@given(graphs(max_arcs=6), graphs(max_arcs=6))
def test_second_order_of_compositions_of_ops(first, second):
    def program(a, b):
        product = ag.remove(ag.project_output(ag.compose(a, ag.union([b, ag.invert(a)]))))
        return ag.union([ag.scale(product, 0.5), ag.shortest_distance(product), ag.reverse(a)])

    assert_gradient(lambda a, b: ag.arc_posteriors(program(a, b)), first, second)
    assert_second_order(program, first, second)


@given(acceptors(max_arcs=5))
def test_second_order_of_a_loss(graph_):
    def loss(g):
        emissions = ag.linear_graph(2, 2, np.array([[0.1, 0.2], [0.3, -0.4]]), calc_grad=False)
        numerator = ag.forward_score(ag.intersect(g, emissions))
        if numerator.item() == -math.inf:
            return ag.forward_score(g)
        return ag.subtract(ag.forward_score(g), numerator)

    assert_second_order(loss, graph_)


def soft(best):
    """The log-sum of best scores: each gradient depends on all scores, so it has a Hessian."""
    return lambda *inputs: ag.forward_score(ag.union(best(*inputs)))


def test_second_order_of_a_sum_of_best_scores():
    # The gradient along each best path is a softmax weight, which depends on both scores.
    first = build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25), (0, 2, 2, 2, 1.0)])
    second = build(2, {0}, {1}, [(0, 0, 0, 0, -0.5), (0, 1, 1, 1, 0.75), (0, 1, 1, 1, 0.0)])
    score = soft(lambda a, b: [ag.viterbi_score(a), ag.viterbi_score(b)])
    assert_gradient(score, first, second)
    assert_second_order(score, first, second)
    assert_second_order(soft(lambda a, b: ag.viterbi_score([a, b, a])), first, second)
    # In closed form: one arc of each graph is on a best path.
    softmax = 1 / (1 + math.exp(0.75 - 1.0))
    vectors = [np.array([7.0, 7.0, 2.0]), np.array([7.0, 0.5, 7.0])]
    along = softmax * (1 - softmax) * (2.0 - 0.5)
    for dtype in ("float32", "float64"):
        inputs = [with_dtype(graph, dtype) for graph in (first, second)]
        found = ag.hvp(score(*inputs), inputs, vectors)
        assert [graph.dtype for graph in found] == [dtype] * 2
        assert weights(found[0]) == pytest.approx([0.0, 0.0, along], rel=1e-6)
        assert weights(found[1]) == pytest.approx([0.0, -along, 0.0], rel=1e-6)


@given(acceptors(max_arcs=6), acceptors(max_arcs=6))
def test_second_order_of_best_scores_of_any_graphs(first, second):
    def best(a, b):
        scores = [ag.viterbi_score(a), ag.viterbi_score(b), ag.viterbi_score(ag.concat([a, b]))]
        return [*scores, ag.scalar_graph(0.5, calc_grad=False)]

    assert_second_order(soft(best), first, second)


def test_a_gradient_can_be_used_in_a_further_program(graph):
    # d/dw of the squared norm of the gradient, through ops on the gradient graph.
    def penalty(g):
        gradient = ag.grad(ag.forward_score(g), g, create_graph=True)
        return ag.forward_score(ag.scale(gradient, 2.0))

    assert_gradient(penalty, graph)


def test_the_gradient_is_differentiable_in_its_seed(graph):
    score = ag.forward_score(graph)
    seed = ag.scalar_graph(2.0)
    gradient = ag.grad(score, graph, seed, create_graph=True)
    to_seed = ag.grad(gradient, seed)
    assert to_seed.item() == pytest.approx(weights(ag.grad(score, graph)).sum(), abs=1e-12)


def test_backward_with_create_graph_stores_a_gradient_on_the_tape(graph):
    ag.backward(ag.forward_score(graph), create_graph=True)
    gradient = graph.grad()
    assert gradient.calc_grad
    product = ag.grad(gradient, graph, like(graph, [1.0, 2.0, 3.0]))
    expected = ag.hvp(ag.forward_score(graph), graph, [1.0, 2.0, 3.0])
    assert weights(product) == pytest.approx(weights(expected), abs=1e-12)


def test_backward_with_create_graph_keeps_the_tape(graph):
    score = ag.forward_score(graph)
    ag.backward(score, create_graph=True)
    ag.backward(score)
    expected = 2 * weights(ag.grad(ag.forward_score(graph), graph))
    assert weights(graph.grad()) == pytest.approx(expected, abs=1e-12)


def test_backward_of_a_gradient_accumulates_in_the_leaf(graph):
    gradient = ag.grad(ag.forward_score(graph), graph, create_graph=True)
    ag.backward(gradient, like(gradient, [1.0, 2.0, 3.0]))
    expected = ag.hvp(ag.forward_score(graph), graph, [1.0, 2.0, 3.0])
    assert weights(graph.grad()) == pytest.approx(weights(expected), abs=1e-12)


def test_hvp_takes_graphs_arrays_and_lists(graph, other):
    score = ag.forward_score(ag.compose(graph, other))
    vectors = [[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]
    formats = (
        vectors,
        [np.array(v) for v in vectors],
        [like(graph, vectors[0]), like(other, vectors[1])],
    )
    answers = [values(*ag.hvp(score, [graph, other], vectors)) for vectors in formats]
    assert answers[0] == answers[1] == answers[2]
    single = ag.hvp(ag.forward_score(graph), graph, np.ones(3))
    assert isinstance(single, ag.Graph)
    assert not graph.is_grad_available()


def test_second_derivatives_are_the_same_under_no_grad(graph):
    score = ag.forward_score(graph)
    vector = [1.0, -2.0, 0.5]
    expected = weights(ag.hvp(score, graph, vector))
    assert expected.any()
    with ag.no_grad():
        assert weights(ag.hvp(score, graph, vector)).tolist() == expected.tolist()
        first = ag.grad(score, graph, create_graph=True)
        assert not ag.is_grad_enabled()
        assert not ag.forward_score(graph).calc_grad
    seed = ag.clone(graph)
    seed.set_weights(vector)
    assert weights(ag.grad(first, graph, seed)).tolist() == expected.tolist()
    with ag.no_grad():
        ag.backward(score, create_graph=True)
        ag.backward(score, create_graph=True)
    twice = ag.grad(graph.grad(), graph, seed)
    assert weights(twice) == pytest.approx(2.0 * expected, rel=1e-15)


def test_hvp_checks_its_vectors(graph):
    score = ag.forward_score(graph)
    with pytest.raises(ValueError, match=r"hvp: .*3 in all, but there are 2"):
        ag.hvp(score, [graph], [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"hvp: .*one vector.*, but there are 2"):
        ag.hvp(score, [graph], [[1.0] * 3] * 2)


def test_the_hessian_is_symmetric(graph, other):
    score = ag.forward_score(ag.compose(graph, other))
    rows = [weights(ag.hvp(score, graph, np.eye(3)[i])) for i in range(3)]
    assert np.array(rows) == pytest.approx(np.array(rows).T, abs=1e-12)


def test_third_order_raises(graph):
    first = ag.grad(ag.forward_score(graph), graph, create_graph=True)
    with pytest.raises(RuntimeError, match="order"):
        ag.grad(first, graph, create_graph=True)
