"""closure: its arcs and its score."""

import math

import pytest
from spec import EMPTY, language, table
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


def test_of_a_graph_that_accepts_the_empty_string_has_a_silent_cycle():
    graph = ag.closure(build(1, {0}, {0}, []))
    with pytest.raises(ValueError, match=r"forward_score: .*, but"):
        ag.forward_score(graph)
    assert ag.viterbi_score(graph).item() == 0.0


def test_the_score_is_a_geometric_series():
    graph = acceptor((0,), weight=-1.0)
    expected = -math.log(1 - math.exp(-1.0))
    assert ag.forward_score(ag.closure(graph)).item() == pytest.approx(expected, abs=1e-12)
