"""The same ops through OpenFst: languages, totals, and sizes of compositions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec import language, paths, score, strings
from strategies import acceptors, closable, convergent, graphs
from tools import build, weights

import arcgrad as ag

pytest.importorskip("pywrapfst", reason="needs the pynini package")
import openfst
import pywrapfst

pytestmark = pytest.mark.openfst

# OpenFst reads log64 weights in double precision but stops series at its own delta.
close = {"abs": 1e-6}


def assert_same_language(fst, graph, read=language):
    assert read(openfst.from_openfst(fst)) == pytest.approx(read(graph), **close)


def sorted_for_composition(first, second):
    one, other = openfst.to_openfst(first), openfst.to_openfst(second)
    one.arcsort("olabel")
    other.arcsort("ilabel")
    return one, other


@given(convergent())
def test_a_round_trip_through_openfst_keeps_the_graph(graph):
    assert_same_language(openfst.to_openfst(graph), graph, strings)


@given(graphs())
def test_forward_score(graph):
    expected = openfst.total(openfst.to_openfst(graph))
    assert ag.forward_score(graph).item() == pytest.approx(expected, **close)


@given(convergent())
def test_forward_score_with_cycles(graph):
    expected = openfst.total(openfst.to_openfst(graph))
    assert ag.forward_score(graph).item() == pytest.approx(expected, **close)


@given(convergent())
def test_viterbi_score(graph):
    expected = openfst.total(openfst.to_openfst(graph, "standard"))
    assert ag.viterbi_score(graph).item() == pytest.approx(expected, abs=1e-4)


@given(graphs())
def test_viterbi_path(graph):
    shortest = pywrapfst.shortestpath(openfst.to_openfst(graph, "standard"))
    expected = ag.forward_score(openfst.from_openfst(shortest)).item()
    assert ag.forward_score(ag.viterbi_path(graph)).item() == pytest.approx(expected, abs=1e-4)


@given(graphs(impossible=False, max_arcs=12), st.integers(1, 8))
def test_best_paths(graph, n):
    shortest = pywrapfst.shortestpath(openfst.to_openfst(graph, "standard"), nshortest=n)
    expected = sorted(map(score, paths(openfst.from_openfst(shortest))), reverse=True)
    found = [sum(weights(path)) for path in ag.best_paths(graph, n)]
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@given(graph=convergent())
def test_shortest_distance(graph, reverse):
    expected = openfst.distances(openfst.to_openfst(graph), graph.num_nodes(), reverse=reverse)
    actual = weights(ag.shortest_distance(graph, reverse=reverse))
    assert actual == pytest.approx(expected, **close)


@given(graphs(), graphs())
def test_compose(first, second):
    expected = pywrapfst.compose(*sorted_for_composition(first, second))
    assert_same_language(expected, ag.compose(first, second))


def with_one_start(graph):
    """The graph behind a single start node, as OpenFst sees it."""
    start = build(1, {0}, {0}, [])
    return ag.connect(ag.concat([start, graph]))


def finals_of(fst):
    return sum(float(fst.final(state)) == 0.0 for state in fst.states())


@given(*[graphs(impossible=False, node_weights=False)] * 2)
def test_compositions_are_as_large_as_in_openfst(first, second):
    first, second = with_one_start(first), with_one_start(second)
    if first.num_start() != 1 or second.num_start() != 1:
        return
    one, other = sorted_for_composition(first, second)
    expected = pywrapfst.compose(one, other, compose_filter="sequence")
    actual = ag.compose(first, second)
    num_arcs = sum(expected.num_arcs(state) for state in expected.states())
    assert (actual.num_nodes(), actual.num_arcs()) == (expected.num_states(), num_arcs)
    assert actual.num_accept() == finals_of(expected)


@pytest.mark.parametrize(
    ("num_nodes", "num_labels"), [(40, 5), (50, 7), (60, 9), (3000, 16), (20_000, 20)]
)
def test_a_larger_composition_is_as_large_as_in_openfst(num_nodes, num_labels):
    rng = np.random.default_rng(0)

    def random_graph(num_nodes, num_arcs, num_labels):
        src, dst = rng.integers(0, num_nodes, (2, num_arcs))
        src[:4], accept = 0, np.arange(0, num_nodes, 5)
        ilabel, olabel = rng.integers(-1, num_labels, (2, num_arcs))
        return ag.Graph.from_arrays(
            src, dst, ilabel, olabel, rng.normal(size=num_arcs), start=[0], accept=accept
        )

    first = random_graph(num_nodes, 4 * num_nodes, num_labels)
    second = random_graph(50, 200, num_labels)
    one, other = sorted_for_composition(first, second)
    expected = pywrapfst.compose(one, other, compose_filter="sequence")
    actual = ag.compose(first, second)
    num_arcs = sum(expected.num_arcs(state) for state in expected.states())
    assert expected.num_states() > 500
    assert (actual.num_nodes(), actual.num_arcs()) == (expected.num_states(), num_arcs)


@given(acceptors(), acceptors())
def test_intersect(first, second):
    one, other = sorted_for_composition(first, second)
    assert_same_language(pywrapfst.intersect(one, other), ag.intersect(first, second))


@given(graphs(), graphs())
def test_union(first, second):
    expected = openfst.to_openfst(first).union(openfst.to_openfst(second))
    assert_same_language(expected, ag.union([first, second]))


@given(graphs(), graphs())
def test_concat(first, second):
    expected = openfst.to_openfst(first).concat(openfst.to_openfst(second))
    assert_same_language(expected, ag.concat([first, second]))


@given(closable())
def test_closure(graph):
    expected = openfst.to_openfst(graph).closure()
    # OpenFst adds the empty string once more when the graph accepts it, as arcgrad does.
    assert_same_language(expected, ag.closure(graph), strings)


@given(convergent())
def test_reverse(graph):
    assert_same_language(pywrapfst.reverse(openfst.to_openfst(graph)), ag.reverse(graph), strings)


@given(convergent())
def test_invert_and_project(graph):
    assert_same_language(openfst.to_openfst(graph).invert(), ag.invert(graph), strings)
    for side, op in (("input", ag.project_input), ("output", ag.project_output)):
        assert_same_language(openfst.to_openfst(graph).project(side), op(graph), strings)


@given(graphs())
def test_remove(graph):
    expected = openfst.to_openfst(graph)
    expected.rmepsilon(delta=1e-12)
    assert_same_language(expected, ag.remove(graph))


@given(convergent())
def test_remove_with_cycles(graph):
    expected = openfst.to_openfst(graph)
    expected.rmepsilon(delta=1e-12)
    assert_same_language(expected, ag.remove(graph), strings)


@given(convergent())
def test_connect(graph):
    expected = openfst.to_openfst(graph).connect()
    actual = ag.connect(graph)
    # OpenFst has one additional start node, which disappears when nothing is accepted.
    is_extra = graph.num_start() != 1 or any(graph.start_weights())
    extra = 1 if expected.num_states() and is_extra else 0
    assert actual.num_nodes() == expected.num_states() - extra
    assert_same_language(expected, actual, strings)
