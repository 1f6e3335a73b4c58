"""Graphs of CTC alignments: the same arcs from every builder, and edits."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arcgrad as ag
from arcgrad import tokens

targets = st.lists(st.integers(1, 3), max_size=8)


def stored(graph):
    """A copy that was saved and loaded."""
    return pickle.loads(pickle.dumps(graph))


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
def test_a_ctc_graph_can_be_edited(scores_first):
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
