"""arc_sources: which arcs of an input the arcs of a result came from."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from strategies import acceptors, convergent, graphs
from tools import build, set_weights, weights

import arcgrad as ag


def sources(result, graph):
    offsets, arcs = ag.arc_sources(result, graph)
    assert len(offsets) == result.num_arcs() + 1
    return [arcs[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def dependencies(result, graph):
    """The same by the gradient of each arc of the result."""
    found = []
    for arc in range(result.num_arcs()):
        seed = set_weights(result.detach(), np.eye(len(weights(result)))[arc])
        gradient = ag.grad(result, graph, seed).weights_to_numpy()
        found.append(np.flatnonzero(gradient).tolist())
    return found


def other():
    return ag.closure(ag.union([ag.chain_graph([0], [1]), ag.chain_graph([1], [0])]))


OPS = {
    "compose": lambda g: ag.compose(g, other()),
    "compose with itself": lambda g: ag.compose(g, ag.invert(g)),
    "union": lambda g: ag.union([g, other(), g]),
    "concat": lambda g: ag.concat([other(), g]),
    "closure": ag.closure,
    "plus": ag.plus,
    "optional": ag.optional,
    "power": lambda g: ag.power(g, 3),
    "reverse": ag.reverse,
    "connect": ag.connect,
    "arc_sort": lambda g: ag.arc_sort(g, olabel=True),
    "project_output": ag.project_output,
    "relabel": lambda g: ag.relabel(g, {0: 7}),
    "delete_arcs": lambda g: ag.delete_arcs(g, [0][: g.num_arcs()]),
    "replace": lambda g: ag.replace(ag.chain_graph([5, 6, 5]), {5: g}),
    "negate": ag.negate,
    "subtract itself twice": lambda g: ag.subtract(ag.negate(g), g),
    "map_weights": lambda g: ag.map_weights(g, np.exp, np.exp),
    "several": lambda g: ag.connect(ag.compose(ag.closure(g), other())),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@given(graph=graphs(impossible=False))
def test_sources_are_the_arcs_that_weights_depend_on(op, graph):
    result = op(graph)
    assert sources(result, graph) == dependencies(result, graph)


@given(acceptors())
def test_sources_of_a_product_with_emissions(graph):
    emissions = ag.linear_graph(2, 2, dtype="float64")
    product = ag.intersect(graph, emissions)
    for factor in (graph, emissions):
        assert sources(product, factor) == dependencies(product, factor)


@given(graphs(impossible=False))
def test_sources_after_remove(graph):
    result = ag.remove(graph)
    assert sources(result, graph) == dependencies(result, graph)


@given(convergent(impossible=False))
def test_sources_after_remove_with_cycles(graph):
    result = ag.remove(graph)
    for found, needed in zip(sources(result, graph), dependencies(result, graph), strict=True):
        assert set(needed) <= set(found)


def test_several_sources():
    graph = build(3, {0}, {2}, [(0, 1, 1, 1, 0.0), (1, 2, -1, -1, 0.0), (1, 2, -1, -1, -1.0)])
    assert sources(ag.remove(graph), graph) == [[0, 1, 2]]
    assert sources(ag.remove(graph, semiring="tropical"), graph) == [[0, 1]]


def test_sources_of_best_paths_and_samples():
    graph = ag.linear_graph(2, 3, [[0.0, 1.0, 2.0], [5.0, 3.0, 1.0]])
    assert sources(ag.viterbi_path(graph), graph) == [[2], [3]]
    assert sources(ag.best_paths(graph, 2)[1], graph) == [[1], [3]]
    (path,) = ag.sample(graph, 1, seed=0)
    assert [k % 3 for (k,) in sources(path, graph)] == path.labels_to_list()
    emissions = ag.linear_graph(2, 3, [[0.0, 1.0, 2.0], [5.0, 3.0, 1.0]])
    best = ag.viterbi_path(ag.intersect(graph, emissions))
    assert sources(best, graph) == sources(best, emissions) == [[2], [3]]


def test_sources_in_an_intermediate_result():
    graph = ag.chain_graph([1, 2], calc_grad=True)
    looped = ag.closure(graph)
    path = ag.concat([looped, looped])
    assert sources(looped, looped) == [[k] for k in range(4)]
    assert sources(path, looped)[-4:] == [[k] for k in range(4)]
    assert sources(path, graph)[:2] == [[0], [1]]


def test_sources_need_a_tape():
    graph = ag.chain_graph([1])
    with pytest.raises(ValueError, match=r"^arc_sources: the input must have calc_grad, .*, but"):
        ag.arc_sources(ag.closure(graph), graph)
    graph.calc_grad = True
    with pytest.raises(ValueError, match=r"^arc_sources: .* computed from the input, but it is"):
        ag.arc_sources(ag.closure(ag.chain_graph([1], calc_grad=True)), graph)
    with ag.no_grad():
        result = ag.closure(graph)
    with pytest.raises(ValueError, match=r"^arc_sources: .* computed from the input, but it is"):
        ag.arc_sources(result, graph)
    result = ag.closure(graph)
    ag.backward(ag.forward_score(ag.compose(result, graph)))
    with pytest.raises(RuntimeError, match=r"freed"):
        ag.arc_sources(result, graph)


def test_a_score_has_no_arcs_of_its_input():
    graph = ag.chain_graph([1], calc_grad=True)
    with pytest.raises(RuntimeError, match=r"^forward_score: its result has no arcs"):
        ag.arc_sources(ag.forward_score(graph), graph)


def test_sources_through_many_ops():
    graph = ag.chain_graph([1, 2], weights=[0.0, -math.inf], calc_grad=True)
    result = graph
    for _ in range(20_000):
        result = ag.reverse(result)
    assert sources(result, graph) == [[0], [1]]
