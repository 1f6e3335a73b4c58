"""What is particular to determinize: determinism, ends with a weight, sizes and errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from spec import TROPICAL, language, strings
from strategies import graphs
from tools import build

import arcgrad as ag


def union_of(*words):
    return ag.union([ag.chain_graph(word) for word in words])


@given(graphs())
def test_the_result_is_deterministic(graph):
    assert ag.is_deterministic(ag.determinize(ag.project_input(graph)))


@given(graphs())
def test_determinizing_twice_changes_nothing(graph):
    once = ag.determinize(graph, semiring="tropical")
    twice = ag.determinize(once, semiring="tropical")
    assert language(twice, TROPICAL) == pytest.approx(language(once, TROPICAL))
    assert twice.num_nodes() == once.num_nodes()


def test_a_deterministic_graph_keeps_its_weights():
    graph = ag.chain_graph([1, 2, 3], weights=[0.1, 0.2, 0.3])
    assert ag.equal(ag.determinize(graph), graph)


def test_words_share_their_beginnings():
    out = ag.determinize(union_of([1, 2, 3], [1, 2, 4], [1, 5]))
    assert out.num_nodes() == 1 + 1 + 1 + 3
    assert ag.is_deterministic(out)


def test_a_word_that_begins_another_ends_inside_it():
    out = ag.determinize(union_of([1], [1, 2]))
    # The residual of each word after label 1 is a half, and remains at the end of the first.
    assert language(out) == pytest.approx({((1,), (1,)): 0.0, ((1, 2), (1, 2)): 0.0})


def test_scores_of_equal_strings_are_added():
    graph = ag.union([ag.chain_graph([1], weights=[w]) for w in (0.5, -1.0, 2.0)])
    out = ag.determinize(graph)
    assert out.num_arcs() == 1
    assert out.weights_to_list() == pytest.approx([np.logaddexp.reduce([0.5, -1.0, 2.0])])
    assert ag.determinize(graph, semiring="tropical").weights_to_list() == [2.0]


def test_impossible_arcs_are_left_out():
    graph = ag.union([ag.chain_graph([1, 2], weights=[0.0, -math.inf]), ag.chain_graph([1, 3])])
    assert ag.determinize(graph).labels_to_list() == [1, 3]


def test_cycles_with_equal_weights_are_determinized():
    # Two loops on label 1, which differ by a constant: the twins property holds.
    graph = build(
        3,
        [0],
        [1, 2],
        [(0, 1, 5, 5, 0.0), (0, 2, 5, 5, -1.0), (1, 1, 1, 1, -2.0), (2, 2, 1, 1, -2.0)],
    )
    out = ag.determinize(graph)
    assert out.num_nodes() == 2
    assert strings(out) == pytest.approx(strings(graph))


def test_two_nodes_without_the_twins_property_are_named():
    graph = build(
        3,
        [0],
        [1, 2],
        [(0, 1, 5, 5, 0.0), (0, 2, 5, 5, 0.0), (1, 1, 1, 1, -2.0), (2, 2, 1, 1, -1.0)],
    )
    with pytest.raises(
        ValueError, match=r"determinize: the scores of nodes 1 and 2 must differ by"
    ):
        ag.determinize(graph, max_nodes=100)


def test_a_result_that_is_too_large_is_an_error():
    # Strings of 0 and 1 with a 1 at the twelfth place from the end need 2^12 nodes.
    arcs = [(0, 0, 0, 0, 0.0), (0, 0, 1, 1, 0.0), (0, 1, 1, 1, 0.0)]
    arcs += [(n, n + 1, label, label, 0.0) for n in range(1, 12) for label in (0, 1)]
    graph = build(13, [0], [12], arcs)
    message = "at most max_nodes = 1000 nodes, but it has more; the graph has 13"
    with pytest.raises(ValueError, match=message):
        ag.determinize(graph, "tropical", max_nodes=1000)
    assert ag.determinize(graph, "tropical").num_nodes() == 2**12
    with pytest.raises(ValueError, match="max_nodes must be 1 or more, but it is 0"):
        ag.determinize(graph, max_nodes=0)


def test_the_gradient_of_the_score_is_that_of_the_graph():
    rng = np.random.default_rng(0)
    words = [rng.integers(0, 3, 6).tolist() for _ in range(40)]
    graph = ag.union([ag.chain_graph(w, weights=rng.normal(size=6), calc_grad=True) for w in words])
    (expected,) = ag.grad(ag.forward_score(graph), [graph])
    (found,) = ag.grad(ag.forward_score(ag.determinize(graph)), [graph])
    np.testing.assert_allclose(found.weights_to_numpy(), expected.weights_to_numpy(), atol=1e-6)


def test_float32_stays_float32():
    assert ag.determinize(union_of([1], [1])).dtype == "float32"


@pytest.mark.parametrize("semiring", ["log", "tropical"])
def test_the_empty_graph_and_the_empty_string(semiring):
    assert ag.determinize(ag.Graph(), semiring).num_nodes() == 0
    empty = ag.determinize(ag.closure(ag.Graph()), semiring)
    assert language(empty) == {((), ()): 0.0}


@pytest.mark.parametrize("semiring", ["log", "tropical"])
def test_large_differences_of_scores_are_kept(semiring):
    graph = build(
        4,
        [0],
        [3],
        [
            *[(0, 1, 0, 0, 0.0), (0, 2, 0, 0, -1e9), (0, 1, 1, 1, 0.0), (0, 2, 1, 1, -2e9)],
            *[(1, 3, 2, 2, 0.0), (2, 3, 3, 3, 0.0)],
        ],
    )
    assert language(ag.determinize(graph, semiring)) == pytest.approx(language(graph))


def test_strings_that_end_inside_others_have_accept_weights():
    out = ag.determinize(union_of([1], [1, 2]))
    assert out.num_nodes() == 3
    np.testing.assert_allclose(out.accept_weights(), [-math.log(2), 0.0], atol=1e-6)
    assert ag.determinize(union_of([1], [1, 2]), max_nodes=3).num_nodes() == 3
