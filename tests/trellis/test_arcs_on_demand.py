"""The arcs of CTC alignments are made only if somebody looks at them."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import snapshot
from trellis_cases import KERNELS, forced, runs

import arcgrad as ag
from arcgrad import tokens

targets = st.lists(st.integers(1, 3), max_size=8)


def stored(graph):
    """The same graph with its arcs in memory."""
    return pickle.loads(pickle.dumps(graph))


def everything(graph, kernel, array):
    """Scores, gradients of both factors and the best path."""
    emissions = ag.linear_graph(*array.shape, array)
    product = ag.intersect(graph, emissions)
    with forced(kernel):
        score = ag.forward_score(product)
        ag.backward(score)
    path = ag.viterbi_path(product)
    return [snapshot(g) for g in (score, graph.grad(), emissions.grad(), path)]


@given(targets, st.integers(0, 12), st.sampled_from(KERNELS), st.integers(0, 99))
def test_scores_do_not_depend_on_whether_arcs_are_stored(target, length, kernel, seed):
    array = np.random.default_rng(seed).normal(size=(length, 4)).astype(np.float32)
    graph = tokens.ctc_graph(target, calc_grad=True)
    if not runs(kernel, [ag.intersect(graph, ag.linear_graph(*array.shape, array))]):
        return
    assert everything(graph, kernel, array) == everything(stored(graph), kernel, array)


@given(targets, st.integers(0, 3))
def test_every_builder_gives_the_same_arcs(target, blank):
    target = [label + 3 for label in target]
    graphs = [
        tokens.ctc_graph(target, blank),
        tokens.ctc_graph([target], blank)[0],
        tokens.alignment_graph(tokens.Tokens.ctc(7, blank), target),
    ]
    expected = tokens.Tokens.ctc(7, blank).graph()
    for graph in graphs:
        assert graph.num_arcs() == len(graph.labels_to_list())
        assert ag.equal(graph, stored(graph))
        assert ag.equal(graph, graphs[0])
        emissions = ag.linear_graph(3, 7)
        explained = [ag.explain(ag.intersect(g, emissions)) for g in (graph, stored(graph))]
        assert repr(explained[0]) == repr(explained[1])
    wanted = ag.remove(ag.project_input(ag.compose(expected, ag.chain_graph(target))))
    assert ag.rand_equivalent(graphs[0], wanted, seed=0)


@pytest.mark.parametrize("scores_first", [False, True])
def test_such_a_graph_can_be_changed(scores_first):
    graph, other = tokens.ctc_graph([1, 2], calc_grad=True), tokens.ctc_graph([1, 2])
    emissions = ag.linear_graph(3, 4)
    if scores_first:
        ag.forward_score(ag.intersect(graph, emissions))
    shared = ag.clone(graph)
    graph.add_arc(0, 4, 3)
    assert graph.num_arcs() == other.num_arcs() + 1 == shared.num_arcs() + 1
    assert ag.equal(shared, other)
    score = ag.forward_score(ag.intersect(graph, emissions)).item()
    assert score > ag.forward_score(ag.intersect(shared, emissions)).item()


def test_reversed_and_projected_graphs_have_the_arcs():
    graph = tokens.ctc_graph([1, 1, 2])
    assert ag.equal(ag.reverse(ag.reverse(graph)), stored(graph))
    assert ag.equal(ag.project_output(ag.invert(graph)), stored(graph))
    turned = ag.intersect(ag.reverse(graph), ag.linear_graph(5, 3))
    plain = ag.intersect(graph, ag.linear_graph(5, 3))
    assert ag.forward_score(turned).item() == pytest.approx(ag.forward_score(plain).item())


def test_several_threads_may_look_at_the_arcs_at_once(threads):
    threads(4)
    graphs = tokens.ctc_graph([[1, 2, 3] * 20] * 8)
    expected = stored(graphs[0]).labels_to_list()
    assert all(
        labels == expected for labels in ag.parallel_for(lambda g: g.labels_to_list(), graphs * 4)
    )
