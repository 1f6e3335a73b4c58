"""string, paths, edit_distance, levenshtein_graph, random_graph, info."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from spec import UNIT, best_paths, edit_costs, paths, without_gain
from strategies import graphs
from tools import build, weights

import arcgrad as ag


def test_the_string_of_a_path_whose_nodes_are_in_any_order():
    arcs = [(1, 0, 5, 6, 0.0), (2, 1, 3, -1, 0.0), (0, 3, -1, 7, 0.0)]
    graph = build(4, {2}, {3}, arcs)
    assert ag.string(graph) == [3, 5]
    assert ag.string(graph, olabel=True) == [6, 7]
    assert ag.string([graph, ag.chain_graph([1])]) == [[3, 5], [1]]
    assert ag.string(build(1, {0}, {0}, [])) == []


@pytest.mark.parametrize(
    "graph",
    [
        ag.Graph(),
        ag.linear_graph(1, 2),
        build(2, {0}, {1}, []),
        build(2, {0, 1}, {1}, [(0, 1, 0, 0, 0.0)]),
        build(2, {0}, {0}, [(0, 1, 0, 0, 0.0)]),
        build(3, {0}, {2}, [(0, 1, 0, 0, 0.0), (0, 2, 0, 0, 0.0)]),
        build(3, {0}, {1}, [(0, 1, 0, 0, 0.0), (1, 0, 0, 0, 0.0)]),
        build(2, {0}, {0}, [(0, 0, 0, 0, 0.0)]),
    ],
)
def test_only_one_path_has_a_string(graph):
    with pytest.raises(ValueError, match=r"^string: the graph must be one path, but it has"):
        ag.string(graph)


@given(graphs())
def test_paths_are_the_best_first(graph):
    expected = best_paths(paths(graph), 100)
    found = list(ag.paths(graph))
    assert found == [
        ([i for i, _, _ in path if i != ag.epsilon], sum(w for _, _, w in path))
        for path in expected
    ]
    assert list(ag.paths(graph, 2)) == found[:2]
    outputs = [tuple(labels) for labels, _ in ag.paths(graph, olabel=True, unique=True)]
    assert len(set(outputs)) == len(outputs)


def test_paths_of_a_cycle_are_found_on_demand():
    loop = build(1, {0}, {0}, [(0, 0, 4, 5, -0.5)])
    found = list(itertools.islice(ag.paths(loop, olabel=True), 40))
    assert found == [([5] * k, -0.5 * k) for k in range(40)]
    assert list(ag.paths(loop, 0)) == []


@given(without_gain())
def test_paths_of_graphs_with_cycles_have_falling_scores(graph):
    scores = [score for _, score in ag.paths(graph, 20)]
    assert scores == sorted(scores, reverse=True)


def test_paths_refuses_what_has_no_best_path():
    graph = build(1, {0}, {0}, [(0, 0, 1, 1, 0.5)])
    with pytest.raises(ValueError, match=r"positive"):
        next(ag.paths(graph))
    with pytest.raises(ValueError, match=r"^paths: limit must be 0 or more, but it is -1"):
        ag.paths(graph, -1)
    with pytest.raises(TypeError, match=r"^paths: limit must"):
        ag.paths(graph, "a")


def test_edits_of_strings_arrays_and_graphs():
    assert ag.edit_distance([], []).item() == 0.0
    assert ag.edit_distance([], [1, 2]).item() == 2.0
    assert ag.edit_distance(np.array([1, 2, 3]), [3]).item() == 2.0
    either = ag.union([ag.chain_graph([1, 1]), ag.chain_graph([7, 8, 9])])
    assert ag.edit_distance([7, 9], either).item() == 1.0
    assert ag.edit_distance([1], ag.Graph()).item() == math.inf
    found = ag.edit_distance([[1, 2], []], [ag.chain_graph([1]), ag.chain_graph([4])])
    assert [distance.item() for distance in found] == [1.0, 1.0]


def test_edits_compare_symbols():
    def named(*symbols):
        table = ag.SymbolTable(symbols)
        return ag.chain_graph([table["a"]], isymbols=table)

    assert ag.edit_distance(named("a", "b"), named("a", "b", "c")).item() == 0.0
    with pytest.raises(ValueError, match="the symbols of labels that meet must agree"):
        ag.edit_distance(named("a", "b"), named("b", "a"))
    text = ag.text.acceptor("ab")
    assert ag.edit_distance(text, text).item() == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_edits_of_long_strings(seed):
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, 2, size=size) for size in (40, 50))
    distance = ag.edit_distance(x, y)
    assert distance.item() == edit_costs(x, y, UNIT)
    assert ag.edit_distance(x, y, ag.levenshtein_graph(2)).item() == distance.item()


def test_new_labels_of_edits_never_clash():
    most = 2**31 - 1
    assert ag.edit_distance([most, 0, 1], [1, most]).item() == 3.0


def test_costs_of_edits_are_learned():
    costs = ag.levenshtein_graph([3, 5], insertion=[0.5, 2.0], deletion=0.25)
    distance = ag.edit_distance([3, 5], [3, 3], costs)
    assert distance.item() == 0.75  # 5 is deleted, 3 is inserted
    gradient = weights(ag.grad(distance, costs))
    #                           matches    substitutions  deletions  insertions
    assert gradient.tolist() == [-1.0, 0.0, 0.0, 0.0, 0.0, -1.0, -1.0, 0.0]


def test_lists_of_strings_have_the_same_length():
    with pytest.raises(ValueError, match=r"edit_distance: both lists .*, but they have 2 and 1"):
        ag.edit_distance([[1], [2]], [[1]])
    for bad in (None, 3, "ab", [0.5], [[1], 2]):
        with pytest.raises((TypeError, ValueError), match=r", but"):
            ag.edit_distance(bad, [1])


@pytest.mark.parametrize(
    "options",
    [
        {"labels": -1},
        {"labels": 2**20},
        {"labels": [1, 1]},
        {"labels": [-1]},
        {"labels": [0.5]},
        {"labels": 2, "insertion": [1.0]},
        {"labels": 2, "substitution": [1.0, 2.0]},
        {"labels": 2, "deletion": math.nan},
    ],
)
def test_costs_must_fit_the_labels(options):
    with pytest.raises((ValueError, TypeError), match=r"^levenshtein_graph: .*, but"):
        ag.levenshtein_graph(**options)


def test_infinite_costs_forbid_an_edit():
    costs = ag.levenshtein_graph(2, substitution=math.inf)
    assert ag.edit_distance([0], [1], costs).item() == 2.0


def test_random_graphs_depend_on_the_seed_only():
    first, again, other = (ag.random_graph(20, 60, 4, seed=s) for s in (1, 1, 2))
    assert ag.equal(first, again)
    assert not ag.equal(first, other)
    assert not ag.equal(ag.random_graph(20, 60, 4), ag.random_graph(20, 60, 4))


def test_options_of_random_graphs():
    graph = ag.random_graph(
        5, 400, 3, acyclic=False, transducer=True, epsilon_rate=0.5, low=2.0, high=3.0, dtype=float
    )
    found = ag.info(graph)
    assert not found.is_acyclic
    assert not found.is_acceptor
    assert 120 < found.num_iepsilons < 280
    assert 2.0 <= found.min_weight <= found.max_weight <= 3.0
    assert found.dtype == "float64"
    assert ag.random_graph(1, 0, 1).num_arcs() == 0
    assert ag.random_graph(1, 3, 1, acyclic=False).num_arcs() == 3


@pytest.mark.parametrize(
    "options",
    [
        {"num_nodes": 0},
        {"num_nodes": 2**31},
        {"num_arcs": 2},
        {"num_nodes": 1},
        {"num_labels": 0},
        {"epsilon_rate": 2.0},
        {"low": 1.0},
        {"high": math.inf},
        {"low": math.nan},
        {"seed": -1},
        {"num_nodes": 1.5},
        {"seed": "a"},
    ],
)
def test_options_of_random_graphs_have_limits(options):
    with pytest.raises((ValueError, TypeError), match=r"^random_graph: .*, but"):
        ag.random_graph(**{"num_nodes": 4, "num_arcs": 6, "num_labels": 2} | options)


def test_info_of_a_transducer():
    arcs = [(0, 1, 1, -1, 0.5), (0, 1, 2, 9, -math.inf), (1, 0, -1, -1, -2.0), (0, 2, 1, 1, 0.0)]
    found = ag.info(build(3, {0}, {1}, arcs))
    assert (found.num_nodes, found.num_arcs, found.num_start, found.num_accept) == (3, 4, 1, 1)
    assert (found.num_ilabels, found.num_olabels) == (2, 2)
    assert (found.num_iepsilons, found.num_oepsilons, found.num_impossible) == (1, 2, 1)
    assert (found.num_connected, found.max_out_arcs) == (2, 3)
    assert (found.min_weight, found.max_weight) == (-2.0, 0.5)
    assert (found.is_acceptor, found.is_acyclic, found.is_deterministic) == (False, False, False)
    assert found.num_bytes == 4 * (4 * 4 + 2) + 8 * 4
    assert "num_arcs          4\n" in str(found)


def test_info_of_an_empty_graph():
    found = ag.info(ag.Graph())
    assert (found.num_nodes, found.num_arcs, found.max_out_arcs) == (0, 0, 0)
    assert math.isnan(found.min_weight)
    with pytest.raises(TypeError, match=r"^info: graph must be a Graph, but"):
        ag.info([ag.Graph()])
