"""Weights of start and accept nodes: building, reading, and results that have them."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
from gradients import like
from hypothesis import given
from strategies import graphs
from tools import build, snapshot, weights

import arcgrad as ag


def weighted(dtype="float64"):
    """Two paths, 0 -1-> 1 and 2 -3-> 1, and the empty path of node 2."""
    graph = ag.Graph(dtype=dtype)
    graph.add_node(start=True, start_weight=0.25)
    graph.add_node(accept=True, accept_weight=-0.5)
    graph.add_node(start=True, accept=True)
    graph.add_arc(0, 1, 1, weight=2.0)
    graph.add_arc(2, 1, 3, weight=1.0)
    return graph


def test_weights_are_read_in_the_order_of_nodes():
    graph = weighted()
    assert graph.has_node_weights()
    assert graph.start_weights().tolist() == [0.25, 0.0]
    assert graph.accept_weights().tolist() == [-0.5, 0.0]
    assert graph.weights_to_list() == [2.0, 1.0]
    assert graph.weights_view().tolist() == [2.0, 1.0]
    assert graph.num_arcs() == 2


def test_a_graph_without_node_weights_reads_as_zeros():
    graph = build(2, {0}, {0, 1}, [(0, 1, 1, 1, 0.5)], dtype="float32")
    assert not graph.has_node_weights()
    assert graph.accept_weights().tolist() == [0.0, 0.0]
    assert graph.accept_weights().dtype == np.float32


def test_building_in_any_order():
    graph = ag.Graph(dtype="float64")
    for _ in range(4):
        graph.add_node()
    graph.make_accept(3, 3.0)
    graph.add_arc(0, 3, 1, weight=1.0)
    graph.make_accept(1)
    assert graph.accept_weights().tolist() == [0.0, 3.0]
    graph.make_start(2, weight=-1.0)
    graph.make_start(0)
    graph.add_arc(2, 1, 2, weight=2.0)
    graph.make_accept(1, 5.0)
    graph.set_accept_weight(3, 4.0)
    graph.set_start_weight(0, 7.0)
    assert graph.add_node(True, True, start_weight=8.0) == 4
    assert graph.start_weights().tolist() == [7.0, -1.0, 8.0]
    assert graph.accept_weights().tolist() == [5.0, 4.0, 0.0]
    assert graph.weights_to_list() == [1.0, 2.0]
    assert [graph.weight(arc) for arc in range(2)] == [1.0, 2.0]


def test_from_arrays_takes_weights_in_the_order_of_the_nodes_given():
    graph = ag.Graph.from_arrays(
        [0], [1], [5], weight=[2.0], start=[2, 0], accept=[1], num_nodes=3, start_weights=[9.0, 8.0]
    )
    assert graph.start().tolist() == [0, 2]
    assert graph.start_weights().tolist() == [8.0, 9.0]
    assert graph.accept_weights().tolist() == [0.0]
    assert graph.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda g: g.add_node(start_weight=1.0),
            "add_node: only a start node has a start weight, but start is false",
        ),
        (
            lambda g: g.add_node(True, accept_weight=1.0),
            "add_node: only an accept node has an accept weight, but accept is false",
        ),
        (
            lambda g: g.set_start_weight(1, 1.0),
            "set_start_weight: the node must be a start node, but node 1 is not one; "
            "use make_start",
        ),
        (
            lambda g: g.set_accept_weight(0, 1.0),
            "set_accept_weight: the node must be an accept node, but node 0 is not one; "
            "use make_accept",
        ),
        (
            lambda g: g.set_accept_weight(9, 1.0),
            "set_accept_weight: the node must be one of the 3 nodes of the graph, but it is 9",
        ),
        (
            lambda g: ag.savetxt("unused", g),
            "savetxt: the graph must have no node weights, which the text format does not have, "
            "but it has 4; save keeps them",
        ),
        (
            lambda g: ag.add(g, ag.reverse(ag.reverse(build(3, {0, 2}, {1, 2}, [])))),
            "add: both graphs must have the same structure, but only the first has node weights",
        ),
        (
            lambda g: ag.Graph.from_arrays(
                [0], [1], [0], start=[0], accept=[1, 1], accept_weights=[1.0, 2.0]
            ),
            "from_arrays: each accept node must have one weight, but node 1 is given twice",
        ),
        (
            lambda g: ag.Graph.from_arrays([0], [1], [0], start=[0], accept=[1], start_weights=[]),
            "from_arrays: start_weights must have one entry per start node, 1 in all, but it has 0",
        ),
    ],
)
def test_errors(call, message):
    graph = weighted()
    before = snapshot(graph)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(graph)
    assert snapshot(graph) == before


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_errors_of_scores_name_the_node(bad):
    graph = weighted()
    graph.set_accept_weight(2, bad)
    for score in (ag.forward_score, ag.viterbi_score, ag.shortest_distance):
        with pytest.raises(ValueError, match="the accept weight of node 2 is"):
            score(graph)
    frames = ag.linear_graph(1, 4)
    for score in (ag.forward_score, ag.viterbi_path):
        with pytest.raises(ValueError, match="the accept weight of node 2 of the graph"):
            score(ag.intersect(graph, frames))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_and_gradients(dtype):
    graph = weighted(dtype)
    totals = [0.25 + 2.0 - 0.5, 1.0 - 0.5, 0.0]
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(np.logaddexp.reduce(totals), rel=1e-6)
    ag.backward(score)
    posterior = np.exp(np.array(totals) - np.logaddexp.reduce(totals))
    gradient = graph.grad()
    assert gradient.start_weights() == pytest.approx([posterior[0], posterior[1] + posterior[2]])
    assert gradient.accept_weights() == pytest.approx([posterior[0] + posterior[1], posterior[2]])
    assert gradient.weights_to_numpy() == pytest.approx(posterior[:2])


def test_paths_keep_the_weights_of_their_ends():
    path = ag.viterbi_path(weighted())
    assert (path.num_nodes(), path.labels_to_list(), path.weights_to_list()) == (2, [1], [2.0])
    assert path.start_weights().tolist() == [0.25]
    assert path.accept_weights().tolist() == [-0.5]
    last = ag.best_paths(weighted(), 3)[-1]
    assert (last.num_nodes(), last.num_arcs(), last.has_node_weights()) == (1, 0, True)


def test_no_arc_or_node_is_added_by_products_with_emissions():
    frames = ag.linear_graph(1, 4, np.arange(4.0), calc_grad=True, dtype="float64")
    graph = weighted()
    product = ag.intersect(graph, frames)
    scores = [ag.forward_score(product), ag.forward_score(ag.intersect(frames, graph))]
    built = ag.intersect(weighted(), frames)
    assert built.num_arcs() == 2
    assert built.start_weights().tolist() == [0.25, 0.0]
    scores.append(ag.forward_score(ag.clone(built)))
    assert [s.item() for s in scores] == pytest.approx([scores[0].item()] * 3)
    path = ag.viterbi_path(product)
    assert (path.num_arcs(), path.accept_weights().tolist()) == (1, [-0.5])


@given(graphs(node_weights=True))
def test_copies_and_files_keep_every_bit(graph):
    assert snapshot(pickle.loads(pickle.dumps(graph))) == snapshot(graph)
    assert snapshot(copy.deepcopy(graph)) == snapshot(graph)
    assert ag.equal(copy.copy(graph), graph)
    assert ag.isomorphic(copy.copy(graph), graph)


def test_save_and_load(tmp_path):
    ag.save(tmp_path / "graph.bin", weighted("float32"))
    assert snapshot(ag.load(tmp_path / "graph.bin")) == snapshot(weighted("float32"))


def test_comparisons_see_node_weights():
    graph, other = weighted(), weighted()
    other.set_start_weight(0, 0.5)
    assert not ag.equal(graph, other)
    assert not ag.isomorphic(graph, other)
    plain = build(3, {0, 2}, {1, 2}, [(0, 1, 1, 1, 2.0), (2, 1, 3, 3, 1.0)])
    assert not ag.equal(graph, plain)
    zero = copy.copy(plain)
    zero.set_start_weight(0, 0.0)
    assert ag.equal(zero, plain)
    assert ag.isomorphic(zero, plain)


def test_set_weights_keeps_node_weights():
    graph = weighted()
    score = ag.forward_score(graph)
    graph.set_weights([5.0, 6.0])
    assert weights(graph).tolist() == [5.0, 6.0, 0.25, 0.0, -0.5, 0.0]
    graph.set_weight(1, 7.0)
    assert weights(graph).tolist() == [5.0, 7.0, 0.25, 0.0, -0.5, 0.0]
    # Earlier results do not change.
    ag.backward(score)


def test_repr_shows_node_weights():
    assert repr(weighted()).startswith(
        "Graph(3 nodes, 2 arcs, start [0/0.25, 2/0], accept [1/-0.5, 2/0], float64, calc_grad)\n"
    )


def test_drawings_show_node_weights(tmp_path):
    ag.write_dot(weighted(), tmp_path / "graph.dot")
    lines = (tmp_path / "graph.dot").read_text().splitlines()
    assert '  0 [style=bold label="0.25/0"]' in lines
    assert '  1 [shape=doublecircle label="1/-0.5"]' in lines
    assert '  2 [shape=doublecircle style=bold label="2"]' in lines


def test_many_arcs_are_added_in_constant_time():
    graph = ag.Graph()
    for _ in range(20_000):
        graph.add_node(True, True, start_weight=1.0, accept_weight=2.0)
    for node in range(20_000):
        graph.add_arc(node, node, 1)
    assert graph.weights_to_numpy().sum() == 0.0
    assert graph.accept_weights().sum() == 40_000.0


def test_gtn_refuses_node_weights():
    gtn = pytest.importorskip("arcgrad.gtn")
    for call in (gtn.forward_score, gtn.negate, lambda g: gtn.compose(g, g)):
        with pytest.raises(ValueError, match="must have no node weights, which gtn does not have"):
            call(gtn.Graph(weighted()))
    with pytest.raises(ValueError, match="savetxt: the graph must have no node weights"):
        gtn.savetxt("unused", weighted())


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("scale", [1.0, 300.0, 1e4])
def test_weights_of_any_size_equal_those_of_epsilon_arcs(scale, cyclic):
    rng = np.random.default_rng(5)
    count = 40
    pairs = [(s, s + d) for s in range(count) for d in (1, 2) if s + d < count]
    if cyclic:
        pairs += [(s + 1, s) for s in range(0, count - 1, 7)]
    start, accept = [0, 3, 17], [5, 30, 39]
    arc_weights = rng.normal(size=len(pairs)) - 2.0
    ends = scale * rng.normal(size=6)
    src, dst = np.array(pairs).T
    graph = ag.Graph.from_arrays(
        src,
        dst,
        src % 3,
        weight=arc_weights,
        start=start,
        accept=accept,
        start_weights=ends[:3],
        accept_weights=ends[3:],
        num_nodes=count,
        calc_grad=True,
    )
    arcs = [(s, d, s % 3, s % 3, w) for (s, d), w in zip(pairs, arc_weights, strict=True)]
    arcs += [(count, n, -1, -1, w) for n, w in zip(start, ends[:3], strict=True)]
    arcs += [(n, count + 1, -1, -1, w) for n, w in zip(accept, ends[3:], strict=True)]
    explicit = build(count + 2, {count}, {count + 1}, arcs)
    vector = np.cos(np.arange(len(arcs)))
    for score in (ag.forward_score, ag.viterbi_score):
        results = []
        for g in (graph, explicit):
            total = score(g)
            (gradient,) = ag.grad(total, [g])
            (product,) = ag.hvp(score(g), [g], [like(g, vector)])
            results.append((total.item(), weights(gradient), weights(product)))
        for one, other in zip(*results, strict=True):
            assert one == pytest.approx(other, rel=1e-9, abs=1e-9)
