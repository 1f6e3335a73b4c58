"""power: n-fold concatenation of a graph with itself."""

import pytest
from spec import EMPTY, language, table
from tools import acceptor, weights

import arcgrad as ag


def test_zero_accepts_only_the_empty_string():
    graph = acceptor((0, 1))
    result = ag.power(graph, 0)
    assert (result.num_nodes(), result.num_arcs(), result.dtype) == (1, 0, graph.dtype)
    assert language(result) == {EMPTY: 0.0}
    assert weights(ag.grad(ag.forward_score(result), graph)).tolist() == [0.0, 0.0]


def test_a_positive_power_of_the_empty_graph_is_empty():
    empty = ag.Graph(dtype="float64")
    assert language(ag.power(empty, 2)) == {}
    assert language(ag.power(empty, 0)) == {EMPTY: 0.0}


def test_is_the_concatenation_of_copies():
    graph = acceptor((0, 1), (2,), weight=0.5)
    assert table(ag.power(graph, 1)) == table(graph)
    assert table(ag.power(graph, 3)) == table(ag.concat([graph, graph, graph]))


def test_every_copy_adds_to_the_gradient():
    graph = acceptor((0, 1))
    assert weights(ag.grad(ag.forward_score(ag.power(graph, 4)), graph)).tolist() == [4.0, 4.0]


def test_a_negative_power_is_an_error():
    with pytest.raises(ValueError, match=r"^power: n must be 0 or more, but it is -1$"):
        ag.power(acceptor((0,)), -1)


def test_a_power_that_is_not_an_integer_is_an_error():
    with pytest.raises(TypeError):
        ag.power(acceptor((0,)), 1.5)


def test_a_power_of_too_many_nodes_is_an_error():
    for n in (2**31, 2**62):
        with pytest.raises(ValueError, match=r"^power: .*, but"):
            ag.power(acceptor((0,)), n)


def test_a_power_of_too_many_arcs_is_an_error():
    nodes = list(range(50_000))
    graph = ag.Graph.from_arrays([], [], [], start=nodes, accept=nodes)
    with pytest.raises(ValueError, match=r"^power: .*arcs.*, but"):
        ag.power(graph, 2)
