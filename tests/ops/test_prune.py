"""What is particular to prune: ties, ends and errors."""

import math

import pytest
from tools import build

import arcgrad as ag


def test_a_threshold_of_zero_keeps_all_best_paths():
    weights = [[0.1 * k, 0.7 - 0.1 * k] for k in range(4)]  # sums that are rounded differently
    graph = ag.union([ag.chain_graph([1, 2], weights=w, dtype="float64") for w in weights])
    assert ag.prune(graph, 0.0).num_arcs() == 8


def test_an_end_of_bad_paths_only_is_no_end():
    graph = build(3, [0, 1], [2], [(0, 2, 1, 1, 0.0), (1, 2, 2, 2, -9.0)])
    assert ag.prune(graph, 5.0).num_nodes() == 2


def test_a_graph_without_a_path_becomes_empty():
    graph = ag.chain_graph([1], weights=[-math.inf])
    assert ag.prune(graph, 1.0).num_nodes() == 0
    assert ag.prune(ag.Graph(), 1.0, "log").num_nodes() == 0


def test_everything_is_within_an_infinite_threshold():
    graph = ag.union([ag.chain_graph([1], weights=[w]) for w in (0.0, -1000.0)])
    assert ag.prune(graph, math.inf).num_arcs() == 2


def test_cycles_are_pruned_by_posterior():
    graph = build(2, [0], [1], [(0, 1, 1, 1, 0.0), (1, 1, 2, 2, -8.0)])
    assert ag.prune(graph, 5.0, "log").num_arcs() == 1


@pytest.mark.parametrize("threshold", [-1.0, math.nan])
def test_a_bad_threshold_is_an_error(threshold):
    with pytest.raises(ValueError, match="prune: the threshold must be 0 or more, but it is"):
        ag.prune(ag.chain_graph([1]), threshold)
