"""concat: its arcs, lists and gradients."""

from spec import EMPTY, language, table
from tools import acceptor, build, weights

import arcgrad as ag


def test_of_no_graphs_accepts_the_empty_string():
    graph = ag.concat([])
    assert graph.num_arcs() == 0
    assert language(graph) == {EMPTY: 0.0}


def test_with_an_empty_language_is_empty():
    assert language(ag.concat([acceptor((0,)), ag.Graph(dtype="float64")])) == {}


def test_joins_every_accept_with_every_start():
    first = build(2, {0}, {0, 1}, [(0, 1, 0, 0, 0.5)])
    second = build(2, {0, 1}, {1}, [(0, 1, 1, 1, 0.25)])
    _, start, accept, arcs = table(ag.concat([first, second]))
    assert (start, accept) == ([0], [3])
    assert [arc[1:] for arc in (arcs[0], arcs[-1])] == [(0, 1, 0, 0, 0.5), (2, 3, 1, 1, 0.25)]
    assert [(arc.src, arc.dst) for arc in arcs[1:-1]] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert all((arc.ilabel, arc.olabel, arc.weight) == (-1, -1, 0.0) for arc in arcs[1:-1])


def test_arcs_stay_in_the_order_of_their_nodes():
    graph = ag.concat([acceptor((0, 1)), acceptor((2,)), acceptor((3, 4))])
    assert graph.labels_to_list() == [0, 1, -1, 2, -1, 3, 4]
    assert list(graph.src_nodes()) == list(range(7))


def test_the_new_arcs_take_no_gradient_from_the_inputs():
    first, second = acceptor((0,)), acceptor((1,))
    joined = ag.concat([first, second])
    gradients = ag.grad(joined, [first, second])
    assert [weights(g).tolist() for g in gradients] == [[1.0], [1.0]]


def test_a_batch_is_a_list_of_lists():
    first, second = acceptor((0,)), acceptor((1,))
    two, none = ag.concat([[first, second], []])
    assert language(two).keys() == {((0, 1), (0, 1))}
    assert language(none) == {EMPTY: 0.0}
