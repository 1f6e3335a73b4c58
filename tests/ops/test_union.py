"""union: the disjoint union of graphs."""

import pytest
from spec import language, table
from tools import acceptor, build, snapshot

import arcgrad as ag


def test_of_no_graphs_is_the_empty_graph():
    graph = ag.union([])
    assert (graph.num_nodes(), graph.num_arcs()) == (0, 0)


def test_of_one_graph_is_its_copy():
    graph = acceptor((0, 1))
    assert snapshot(ag.union([graph])) == snapshot(graph)


def test_is_the_disjoint_union_of_the_graphs():
    first = build(2, {0}, {1}, [(0, 1, 0, 3, 0.5)])
    second = build(2, {1}, {0}, [(1, 0, 2, 2, 0.25)])
    _, start, accept, arcs = table(ag.union([first, second]))
    assert (start, accept) == ([0, 3], [1, 2])
    assert [arc[1:] for arc in arcs] == [(0, 1, 0, 3, 0.5), (3, 2, 2, 2, 0.25)]


def test_the_operator_is_union():
    first, second = acceptor((0,)), acceptor((1,))
    assert snapshot(first + second) == snapshot(ag.union([first, second]))


def test_a_tuple_serves_as_the_list():
    assert language(ag.union((acceptor((0,)), acceptor((1,))))).keys() == {
        ((0,), (0,)),
        ((1,), (1,)),
    }


def test_a_batch_is_a_list_of_lists():
    first, second = acceptor((0,)), acceptor((1,))
    both, one, none = ag.union([[first, second], [second], []])
    assert [g.num_arcs() for g in (both, one, none)] == [2, 1, 0]


def test_rejects_arguments_that_are_not_graphs():
    with pytest.raises(TypeError):
        ag.union([acceptor((0,)), 3])
    with pytest.raises(TypeError):
        ag.union(acceptor((0,)))
