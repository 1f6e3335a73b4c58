"""sample: random paths with the probability of their score."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from spec import chain, paths, score, spell, trace
from strategies import graphs
from tools import build, snapshot, weights

import arcgrad as ag


def test_paths_are_drawn_with_the_probability_of_their_score():
    graph = build(
        3,
        {0},
        {2},
        [(0, 1, 0, 0, 0.0), (0, 2, 1, 1, 1.0), (1, 2, 2, 2, 0.5), (1, 2, 3, 3, -math.inf)],
    )
    log_sum = ag.forward_score(graph).item()
    expected = {spell(p)[0]: math.exp(score(p) - log_sum) for p in paths(graph)}
    drawn = Counter(tuple(ag.sample(graph, seed=s).labels_to_list()) for s in range(4000))
    for word, probability in expected.items():
        # Five standard deviations.
        spread = 5 * math.sqrt(probability * (1 - probability) / 4000)
        assert drawn[word] / 4000 == pytest.approx(probability, abs=spread)


def test_path_lengths_of_a_cyclic_graph_follow_their_distribution():
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, math.log(0.5)), (0, 1, 1, 1, 0.0)])
    lengths = [ag.sample(graph, seed=s).num_arcs() - 1 for s in range(2000)]
    assert np.mean(lengths) == pytest.approx(1.0, abs=5 * math.sqrt(2 / 2000))


@given(graphs())
def test_the_same_seed_draws_the_same_path(graph):
    if ag.viterbi_path(graph).num_nodes():
        first, second = ag.sample(graph, seed=3), ag.sample(graph, seed=3)
        assert snapshot(first) == snapshot(second)
        assert chain(first) in [trace(path) for path in paths(graph)]


def test_different_seeds_draw_different_paths():
    graph = ag.linear_graph(10, 4)
    drawn = {tuple(ag.sample(graph, seed=s).labels_to_list()) for s in range(10)}
    assert len(drawn) == 10


def test_without_a_seed_draws_differ():
    graph = ag.linear_graph(30, 4)
    assert len({tuple(ag.sample(graph).labels_to_list()) for _ in range(5)}) > 1


def test_a_list_is_sampled_element_by_element():
    graph = ag.linear_graph(10, 4)
    drawn = ag.sample([graph] * 8, seed=0)
    assert len({tuple(g.labels_to_list()) for g in drawn}) > 1
    again = ag.sample([graph] * 8, seed=0)
    assert [snapshot(g) for g in again] == [snapshot(g) for g in drawn]


def test_the_gradient_reaches_the_arcs_that_were_drawn():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, -math.inf)])
    path = ag.sample(graph, seed=0)
    assert weights(ag.grad(path, graph)).tolist() == [1.0, 0.0]


def test_the_empty_path_can_be_drawn():
    path = ag.sample(build(1, {0}, {0}, []), seed=0)
    assert (path.num_nodes(), path.num_arcs()) == (1, 0)


def test_rejects_a_graph_without_a_path():
    for graph in (ag.Graph(), build(2, {0}, {1}, [(0, 1, 0, 0, -math.inf)])):
        with pytest.raises(ValueError, match=r"sample: .*accept a path, but it accepts none"):
            ag.sample(graph, seed=0)


def test_rejects_a_path_longer_than_the_limit():
    graph = ag.chain_graph([0] * 10)
    assert ag.sample(graph, max_length=10, seed=0).num_arcs() == 10
    with pytest.raises(ValueError, match=r"sample: .*max_length.*, but .* 9"):
        ag.sample(graph, max_length=9, seed=0)


def test_rejects_a_divergent_cycle():
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, 0.5), (0, 1, 1, 1, 0.0)])
    with pytest.raises(ValueError, match=r"sample: .*, but"):
        ag.sample(graph, seed=0)
