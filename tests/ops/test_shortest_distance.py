"""shortest_distance: the score of each node, in both directions."""

import math

import numpy as np
import pytest
from tools import build, weights

import arcgrad as ag


@pytest.fixture
def diamond():
    arcs = [(0, 1, 0, 0, 1.0), (0, 2, 0, 0, 2.0), (1, 3, 0, 0, 3.0), (2, 3, 0, 0, 1.0)]
    return build(5, {0}, {3}, arcs)


def test_the_distance_of_node_n_is_the_weight_of_arc_n(diamond):
    result = ag.shortest_distance(diamond, semiring="tropical")
    assert result.labels_to_list() == [0, 1, 2, 3, 4]
    assert (result.num_nodes(), result.dtype) == (2, np.float64)
    assert result.weights_to_list() == [0.0, 1.0, 2.0, 4.0, -math.inf]


def test_reverse_measures_to_the_accepts(diamond):
    result = ag.shortest_distance(diamond, reverse=True, semiring="tropical")
    assert result.weights_to_list() == [4.0, 3.0, 1.0, 0.0, -math.inf]


def test_the_default_semiring_is_log(diamond):
    expected = float(np.logaddexp(4.0, 3.0))
    assert ag.shortest_distance(diamond).weights_to_list()[3] == pytest.approx(expected)


def test_the_distance_to_the_accepts_is_the_forward_score(diamond):
    reached = ag.shortest_distance(diamond).weights_to_list()[3]
    assert reached == pytest.approx(ag.forward_score(diamond).item(), abs=1e-12)


def test_an_unreachable_node_has_no_gradient(diamond):
    gradient = ag.grad(ag.shortest_distance(diamond), diamond)
    assert np.all(np.isfinite(weights(gradient)))


def test_the_empty_graph_has_no_distances():
    assert ag.shortest_distance(ag.Graph()).num_arcs() == 0


def test_rejects_an_unknown_semiring(diamond):
    with pytest.raises(ValueError, match=r"shortest_distance: .*semiring.*, but .*max"):
        ag.shortest_distance(diamond, semiring="max")


@pytest.mark.parametrize(("semiring", "weight"), [("log", 0.0), ("tropical", 1.0)])
def test_rejects_a_divergent_cycle(semiring, weight):
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, weight), (0, 1, 0, 0, 0.0)])
    with pytest.raises(ValueError, match=r"shortest_distance: .*, but .*nodes \{0\} has"):
        ag.shortest_distance(graph, semiring=semiring)


def test_rejects_nan(diamond):
    diamond.set_weight(2, math.nan)
    with pytest.raises(ValueError, match=r"shortest_distance: .*, but .*arc 2"):
        ag.shortest_distance(diamond)
