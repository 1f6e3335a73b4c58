"""closure: its arcs and its score."""

import math

import pytest
from hypothesis import given
from spec import EMPTY, language, strings, table
from strategies import closable
from tools import acceptor, build

import arcgrad as ag


def test_of_the_empty_graph_accepts_the_empty_string():
    assert language(ag.closure(ag.Graph(dtype="float64"))) == {EMPTY: 0.0}


def test_adds_node_zero_and_shifts_the_others():
    graph = build(3, {0, 1}, {2}, [(0, 2, 5, 6, 0.5), (1, 2, 7, 7, 0.25)])
    num_nodes, start, accept, arcs = table(ag.closure(graph))
    assert (num_nodes, start, accept) == (4, [0], [0])
    assert [arc[1:] for arc in arcs] == [
        (1, 3, 5, 6, 0.5),
        (2, 3, 7, 7, 0.25),
        (0, 1, -1, -1, 0.0),
        (0, 2, -1, -1, 0.0),
        (3, 0, -1, -1, 0.0),
    ]


@pytest.mark.parametrize("op", [ag.closure, ag.plus])
def test_an_empty_path_is_not_repeated(op):
    graph = op(build(1, {0}, {0}, []))
    assert language(graph) == {EMPTY: 0.0}
    # A loop at a node that starts and ends: each round is a repetition of one arc.
    loop = op(build(1, {0}, {0}, [(0, 0, 1, 1, -2.0)]))
    rounds = {((1,) * n, (1,) * n): -2.0 * n + (n - 1) * math.log(2) for n in range(1, 4)}
    assert strings(loop) == pytest.approx({EMPTY: 0.0} | rounds)


@pytest.mark.parametrize("op", [ag.closure, ag.plus])
@given(graph=closable(empty_path=True, node_weights=False))
def test_optional_parts_are_repeated(op, graph):
    shorter = ag.closure(without_empty_path(graph))
    expected = strings(shorter)
    if op is ag.plus and not set(graph.start().tolist()) & set(graph.accept().tolist()):
        expected = strings(ag.concat([graph, shorter]))
    assert strings(op(graph)) == pytest.approx(expected)


def without_empty_path(graph):
    """The paths with at least one arc, as a graph whose accept nodes are copies of the old ones."""
    rows = list(zip(*(c.tolist() for c in graph.arcs()), strict=True))
    num_nodes, accept = graph.num_nodes(), graph.accept().tolist()
    rows += [(s, d + num_nodes, *rest) for s, d, *rest in rows if d in accept]
    ends = [n + num_nodes for n in accept]
    return build(2 * num_nodes, graph.start().tolist(), ends, rows)


def test_the_gradient_of_a_loop_counts_its_copies():
    graph = build(1, {0}, {0}, [(0, 0, 1, 1, -1.0)])
    # 1 + x + 2x^2 + 4x^3 + ... with x = exp(-1): rounds of one arc, in all compositions.
    x = math.exp(-1)
    total = 1 + x / (1 - 2 * x)
    (found,) = ag.grad(ag.forward_score(ag.closure(graph)), [graph])
    assert ag.forward_score(ag.closure(graph)).item() == pytest.approx(math.log(total))
    assert found.weights_to_list() == pytest.approx([x / (1 - 2 * x) ** 2 / total])


def test_an_empty_path_with_a_weight_is_repeated():
    graph = ag.Graph(dtype="float64")
    graph.add_node(True, True, accept_weight=-1.0)
    assert ag.forward_score(ag.closure(graph)).item() == pytest.approx(-math.log1p(-math.exp(-1)))
    graph.set_accept_weight(0, 0.0)
    with pytest.raises(ValueError, match=r"forward_score: .*, but"):
        ag.forward_score(ag.closure(graph))


def test_an_epsilon_arc_of_weight_zero_is_repeated():
    graph = ag.closure(build(2, {0}, {1}, [(0, 1, ag.epsilon, ag.epsilon, 0.0)]))
    with pytest.raises(ValueError, match=r"forward_score: .*, but"):
        ag.forward_score(graph)


def test_the_score_is_a_geometric_series():
    graph = acceptor((0,), weight=-1.0)
    expected = -math.log(1 - math.exp(-1.0))
    assert ag.forward_score(ag.closure(graph)).item() == pytest.approx(expected, abs=1e-12)
