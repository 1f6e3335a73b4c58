"""clone, project_input, project_output, invert, reverse, connect, arc_sort and top_sort."""

import numpy as np
import pytest
from hypothesis import given
from spec import table
from strategies import convergent, graphs
from tools import build, snapshot

import arcgrad as ag


@given(convergent())
def test_clone_is_the_same_graph_on_the_tape(graph):
    copy = ag.clone(graph)
    assert snapshot(copy) == snapshot(graph)
    assert ag.equal(ag.grad(copy, graph), ag.grad(ag.clone(graph), graph))


def test_a_clone_does_not_follow_later_edits():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.5)])
    copy = ag.clone(graph)
    graph.add_arc(0, 1, 1)
    graph.set_weight(0, 9.0)
    assert copy.weights_to_list() == [0.5]


@pytest.mark.parametrize("op", [ag.reverse, ag.invert, ag.project_input, ag.project_output])
def test_editing_one_of_two_graphs_that_share_arrays_does_not_change_the_other(op):
    graph = build(2, {0}, {1}, [(0, 1, 3, 4, 0.5)])
    result = op(op(graph))
    before, expected = snapshot(graph), snapshot(result)
    result.add_arc(0, 0, 7, 8)
    assert snapshot(graph) == before
    result = op(op(graph))
    graph.add_arc(0, 0, 7, 8)
    assert snapshot(result) == expected


@given(convergent())
def test_projections_and_inversion_change_labels_only(graph):
    for result, labels in (
        (ag.project_input(graph), (graph.ilabels(), graph.ilabels())),
        (ag.project_output(graph), (graph.olabels(), graph.olabels())),
        (ag.invert(graph), (graph.olabels(), graph.ilabels())),
    ):
        assert result.ilabels().tolist() == labels[0].tolist()
        assert result.olabels().tolist() == labels[1].tolist()
        assert result.src_nodes().tolist() == graph.src_nodes().tolist()
        assert result.weights_to_list() == graph.weights_to_list()


@given(convergent())
def test_reverse_turns_arcs_and_swaps_start_with_accept(graph):
    result = ag.reverse(graph)
    assert result.start().tolist() == graph.accept().tolist()
    assert result.accept().tolist() == graph.start().tolist()
    assert sorted(zip(result.src_nodes(), result.dst_nodes(), strict=True)) == sorted(
        zip(graph.dst_nodes(), graph.src_nodes(), strict=True)
    )


def reachable(nodes, arcs, *, backwards=False):
    found, size = set(nodes), -1
    while size != len(found):
        size = len(found)
        for arc in arcs:
            src, dst = (arc.dst, arc.src) if backwards else (arc.src, arc.dst)
            if src in found:
                found.add(dst)
    return found


@given(convergent(node_weights=False))
def test_connect_keeps_exactly_the_nodes_on_accepted_paths(graph):
    _, start, accept, arcs = table(graph)
    alive = reachable(start, arcs) & reachable(accept, arcs, backwards=True)
    result = ag.connect(graph)
    assert result.num_nodes() == len(alive)
    assert result.num_arcs() == sum(a.src in alive and a.dst in alive for a in arcs)
    assert result.num_start() == len(alive & set(start))
    assert result.num_accept() == len(alive & set(accept))


@pytest.mark.parametrize("dead_end", [0, 1, 1500, 2998, 2999])
def test_connect_drops_a_dead_end_anywhere_in_a_long_graph(dead_end):
    steps = [(n, n + by) for n in range(2999) for by in (1, 2) if n + by < 3000 and n != dead_end]
    arcs = [(src, dst, 0, 0, 0.0) for src, dst in steps]
    result = ag.connect(build(3000, {0, 1}, {2998, 2999} - {dead_end}, arcs))
    assert result.num_nodes() == 2999
    assert result.num_arcs() == sum(dst != dead_end for _, dst in steps)


@given(convergent())
def test_arc_sort_orders_the_arcs_of_every_node_by_label(graph):
    for olabel in (False, True):
        result = ag.arc_sort(graph, olabel)
        labels = result.olabels() if olabel else result.ilabels()
        for node in range(result.num_nodes()):
            out = [int(labels[arc]) for arc in result.out_arcs(node)]
            assert out == sorted(out)
        assert ag.equal(result, graph)


@given(graphs())
def test_top_sort_makes_every_arc_go_up(graph):
    result = ag.top_sort(graph)
    assert np.all(result.src_nodes() < result.dst_nodes())
    assert result.num_nodes() == graph.num_nodes()
    assert ag.isomorphic(result, graph)


def test_top_sort_rejects_a_cycle():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (1, 0, 0, 0, 0.0)])
    with pytest.raises(ValueError, match=r"top_sort: .*no cycle, but node 0 lies on one"):
        ag.top_sort(graph)


@pytest.mark.parametrize(
    "op",
    [
        ag.clone,
        ag.project_input,
        ag.project_output,
        ag.invert,
        ag.reverse,
        ag.connect,
        ag.remove,
        ag.arc_sort,
        ag.top_sort,
        ag.negate,
    ],
)
def test_the_empty_graph_stays_empty(op):
    result = op(ag.Graph())
    assert (result.num_nodes(), result.num_arcs()) == (0, 0)


def test_connect_does_not_depend_on_the_order_of_arcs():
    rng = np.random.default_rng(0)
    for _ in range(50):
        num_nodes, num_arcs = int(rng.integers(2, 30)), int(rng.integers(1, 40))
        src = np.sort(rng.integers(0, num_nodes - 1, num_arcs))
        dst = rng.integers(src + 1, num_nodes)
        weight = np.arange(num_arcs, dtype=np.float64)
        ends = {"start": rng.integers(0, num_nodes, 2), "accept": rng.integers(0, num_nodes, 2)}

        def arcs(order, src=src, dst=dst, weight=weight, num_nodes=num_nodes, ends=ends):
            columns = [column[order] for column in (src, dst, src % 3, dst % 3, weight)]
            graph = ag.Graph.from_arrays(*columns, num_nodes=num_nodes, **ends)
            found = ag.connect(graph)
            sizes = found.num_nodes(), found.start().tolist(), found.accept().tolist()
            return sizes, sorted(zip(*(c.tolist() for c in found.arcs()), strict=True))

        assert arcs(np.arange(num_arcs)) == arcs(rng.permutation(num_arcs))
