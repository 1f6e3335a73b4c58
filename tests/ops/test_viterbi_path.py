"""viterbi_path: the best path, its ties, gradients and errors."""

import math

import pytest
from gradients import like
from hypothesis import given
from spec import chain
from strategies import graphs
from tools import build, weights

import arcgrad as ag


def test_without_a_path_the_result_is_the_empty_graph():
    path = ag.viterbi_path(build(2, {0}, {1}, []))
    assert (path.num_nodes(), path.num_arcs()) == (0, 0)


def test_an_impossible_path_is_not_returned():
    path = ag.viterbi_path(build(2, {0}, {1}, [(0, 1, 0, 0, -math.inf)]))
    assert path.num_nodes() == 0


def test_the_empty_path_is_one_node_that_starts_and_accepts():
    path = ag.viterbi_path(build(2, {0}, {0, 1}, [(0, 1, 0, 0, -1.0)]))
    assert (path.num_nodes(), path.num_arcs()) == (1, 0)
    assert path.is_start(0)
    assert path.is_accept(0)


def test_keeps_labels_and_weights_of_both_sides():
    graph = build(3, {0}, {2}, [(0, 1, 0, 5, 0.5), (1, 2, ag.epsilon, 3, 0.25)])
    assert chain(ag.viterbi_path(graph)) == [(0, 5, 0.5), (ag.epsilon, 3, 0.25)]


def test_ties_are_broken_by_the_first_arc_that_differs():
    # Both paths score 0. The first leaves by arc 1 and the second by arc 2, whatever follows.
    arcs = [(2, 3, 9, 9, 0.0), (0, 1, 1, 1, 0.0), (0, 2, 2, 2, 0.0), (1, 3, 3, 3, 0.0)]
    path = ag.viterbi_path(build(4, {0}, {3}, arcs))
    assert path.labels_to_list() == [1, 3]


def test_a_tie_between_starts_goes_to_the_smaller_arc():
    arcs = [(1, 2, 7, 7, 0.0), (0, 2, 8, 8, 0.0)]
    assert ag.viterbi_path(build(3, {0, 1}, {2}, arcs)).labels_to_list() == [7]


def test_many_ties_still_take_the_smallest_arc_ids():
    arcs = [(t, t + 1, c, c, 0.0) for t in range(20) for c in (1, 0)]
    path = ag.viterbi_path(build(21, {0}, {20}, arcs))
    assert path.labels_to_list() == [1] * 20


def test_the_seed_reaches_the_arcs_in_the_order_of_the_path():
    graph = build(3, {0}, {2}, [(1, 2, 1, 1, 0.0), (0, 1, 0, 0, 0.0), (0, 2, 2, 2, -9.0)])
    path = ag.viterbi_path(graph)
    gradient = ag.grad(path, graph, like(path, [10.0, 20.0]))
    assert weights(gradient).tolist() == [20.0, 10.0, 0.0]


def test_a_cycle_of_weight_zero_does_not_trap_the_path():
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, 0.0), (0, 1, 1, 1, 0.5)])
    assert ag.viterbi_score(graph).item() == sum(w for *_, w in chain(ag.viterbi_path(graph)))


def test_on_cycles_of_weight_zero_the_fewest_arcs_decide_first():
    arcs = [(0, 1, 0), (1, 2, 1), (0, 2, 2), (2, 0, 3)]
    assert ag.viterbi_path(build(3, {0}, {2}, arcs)).labels_to_list() == [2]


def test_on_cycles_of_weight_zero_the_smallest_arc_ids_decide_next():
    # Two arcs either way: 1 5 or 4 3. Arc 0 closes the cycles.
    ends = [(3, 1), (1, 2), (2, 0), (0, 3), (1, 0), (2, 3)]
    arcs = [(src, dst, a) for a, (src, dst) in enumerate(ends)]
    assert ag.viterbi_path(build(4, {1}, {3}, arcs)).labels_to_list() == [1, 5]


@given(graphs(cyclic=True, low=-1.0, high=0.0))
def test_the_best_path_of_a_cyclic_graph_visits_no_node_twice(graph):
    path = ag.viterbi_path(graph)
    assert path.num_nodes() <= graph.num_nodes()
    score = sum(weights(path)) if path.num_nodes() else -math.inf
    assert score == ag.viterbi_score(graph).item()


def test_rejects_a_positive_cycle():
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, 1.0), (0, 1, 1, 1, 0.5)])
    with pytest.raises(ValueError, match=r"viterbi_path: .*, but .*nodes \{0\} has"):
        ag.viterbi_path(graph)


def test_rejects_nan():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    with pytest.raises(ValueError, match=r"viterbi_path: .*, but .*arc 0"):
        ag.viterbi_path(graph)
