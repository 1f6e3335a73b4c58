import math

import numpy as np
import pytest
from hypothesis import given
from spec import EMPTY, language, table
from strategies import convergent, graphs
from tools import build, weights

import arcgrad as ag

eps = ag.epsilon


@given(convergent())
def test_at_most_one_silent_arc_remains_and_it_carries_the_empty_string(graph):
    result = ag.remove(graph)
    silent = [a for a in table(result).arcs if (a.ilabel, a.olabel) == (eps, eps)]
    assert len(silent) <= 1
    for arc in silent:
        assert result.is_start(arc.src)
        assert result.is_accept(arc.dst)


@given(convergent())
def test_every_remaining_node_lies_on_the_way_of_a_labelled_arc(graph):
    result = ag.remove(graph)
    assert result.num_nodes() <= graph.num_nodes() + 2


def test_the_weight_of_a_silent_arc_moves_to_the_arcs_after_it():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 3, 4, 0.25)])
    result = ag.remove(graph)
    assert language(result) == pytest.approx({((3,), (4,)): 0.75}, abs=1e-12)
    assert weights(ag.grad(ag.forward_score(result), graph)).tolist() == [1.0, 1.0]


def test_one_sided_epsilons_are_kept():
    graph = build(3, {0}, {2}, [(0, 1, eps, 5, 0.5), (1, 2, 3, eps, 0.25)])
    assert language(ag.remove(graph)) == pytest.approx({((3,), (5,)): 0.75}, abs=1e-12)
    assert ag.remove(graph).num_arcs() == 2


def test_a_weighted_empty_string_survives():
    graph = build(2, {0}, {1}, [(0, 1, eps, eps, 0.5), (0, 1, 3, 3, 0.0)])
    assert language(ag.remove(graph)) == pytest.approx({EMPTY: 0.5, ((3,), (3,)): 0.0}, abs=1e-12)


def test_parallel_silent_paths_add_up_or_compete():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.0), (0, 1, eps, eps, 0.0), (1, 2, 3, 3, 0.0)])
    assert language(ag.remove(graph)) == pytest.approx({((3,), (3,)): math.log(2)}, abs=1e-12)
    assert language(ag.remove(graph, semiring="tropical")) == pytest.approx(
        {((3,), (3,)): 0.0}, abs=1e-12
    )


def test_a_silent_loop_is_a_geometric_series():
    graph = build(2, {0}, {1}, [(0, 0, eps, eps, -1.0), (0, 1, 3, 3, 0.0)])
    expected = -math.log(1 - math.exp(-1.0))
    assert ag.forward_score(ag.remove(graph)).item() == pytest.approx(expected, abs=1e-12)
    assert ag.viterbi_score(ag.remove(graph, semiring="tropical")).item() == 0.0


@pytest.mark.parametrize(("semiring", "weight"), [("log", 0.0), ("log", 1.0), ("tropical", 1.0)])
def test_rejects_a_divergent_silent_cycle(semiring, weight):
    graph = build(2, {0}, {1}, [(0, 0, eps, eps, weight), (0, 1, 3, 3, 0.0)])
    with pytest.raises(ValueError, match=r"remove: .*, but .*nodes \{0\} has"):
        ag.remove(graph, semiring=semiring)


def test_a_label_is_removed_as_if_it_were_epsilon():
    graph = build(3, {0}, {2}, [(0, 1, 0, 1, 0.5), (1, 2, 0, 0, 0.25)])
    assert language(ag.remove(graph, 0, 1)) == pytest.approx({((0,), (0,)): 0.75}, abs=1e-12)
    assert language(ag.remove(graph, 0)) == pytest.approx({((0,), (1,)): 0.75}, abs=1e-12)


def test_epsilons_stay_when_another_label_is_removed():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 7, 7, 0.25)])
    assert language(ag.remove(graph, 7)) == pytest.approx({EMPTY: 0.75}, abs=1e-12)


@given(graphs())
def test_forward_and_viterbi_scores_stay(graph):
    before, after = ag.forward_score(graph).item(), ag.forward_score(ag.remove(graph)).item()
    assert after == pytest.approx(before, abs=1e-9)
    best = ag.viterbi_score(graph).item()
    kept = ag.viterbi_score(ag.remove(graph, semiring="tropical")).item()
    assert kept == pytest.approx(best, abs=1e-9)


def test_takes_a_list_of_graphs():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 3, 4, 0.25)])
    for result in ag.remove([graph, graph], eps):
        assert language(result) == pytest.approx({((3,), (4,)): 0.75}, abs=1e-12)


def test_rejects_bad_labels_and_semirings():
    graph = build(1, {0}, {0}, [])
    with pytest.raises(ValueError, match=r"remove: .*label.*, but .*-2"):
        ag.remove(graph, -2)
    with pytest.raises(ValueError, match=r"remove: .*semiring.*, but .*real"):
        ag.remove(graph, semiring="real")


def test_rejects_nan_on_a_silent_arc():
    graph = build(2, {0}, {1}, [(0, 1, eps, eps, np.nan)])
    with pytest.raises(ValueError, match=r"remove: .*, but .*arc 0"):
        ag.remove(graph)


def test_ways_that_lead_nowhere_come_to_nothing():
    # Also where such a node is the last that removed arcs leave.
    arcs = [(0, 1, 5, 5, 0.0), (1, 2, eps, eps, 0.0), (0, 3, 5, 5, 0.0), (3, 4, eps, eps, 0.0)]
    result = ag.remove(build(5, {0}, {2}, arcs))
    assert (result.num_nodes(), result.num_arcs()) == (2, 1)
    assert language(result) == {((5,), (5,)): 0.0}


@given(convergent())
def test_a_graph_without_dead_ends_keeps_none(graph):
    for given_graph in (graph, ag.connect(graph)):
        result = ag.remove(given_graph)
        assert ag.connect(result).num_nodes() == result.num_nodes()
