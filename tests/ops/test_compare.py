"""equal, isomorphic and rand_equivalent."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import table
from strategies import acceptors, convergent, graphs
from tools import acceptor, build, with_dtype, with_weights

import arcgrad as ag

arcs = [(0, 1, 0, 1, 0.5), (0, 2, 1, 0, -1.25), (1, 2, 2, 2, 3.0)]


def shuffled(graph, seed):
    """The same graph with nodes and arcs in another order."""
    rng = np.random.default_rng(seed)
    new_id = rng.permutation(graph.num_nodes()).astype(np.int32)
    order = rng.permutation(graph.num_arcs())
    src, dst, ilabel, olabel, weight = graph.arcs()
    return ag.Graph.from_arrays(
        new_id[src][order],
        new_id[dst][order],
        ilabel[order],
        olabel[order],
        weight[order],
        start=new_id[graph.start()],
        accept=new_id[graph.accept()],
        num_nodes=graph.num_nodes(),
        start_weights=graph.start_weights() if graph.has_node_weights() else None,
        accept_weights=graph.accept_weights() if graph.has_node_weights() else None,
    )


@given(convergent())
def test_a_graph_equals_its_copy(graph):
    assert ag.equal(graph, copy.deepcopy(graph))
    assert ag.isomorphic(graph, copy.deepcopy(graph))


@pytest.mark.parametrize(
    "change",
    [
        {"num_nodes": 4},
        {"start": {1}},
        {"accept": {1}},
        {"start": {0, 1}},
        {"arcs": arcs[:2]},
        {"arcs": [*arcs, arcs[0]]},
        {"arcs": [(0, 1, 0, 2, 0.5), *arcs[1:]]},
        {"arcs": [(0, 1, 0, 1, 0.75), *arcs[1:]]},
        {"arcs": [(1, 0, 0, 1, 0.5), *arcs[1:]]},
    ],
)
def test_equal_detects_every_difference(change):
    shape = {"num_nodes": 3, "start": {0}, "accept": {2}, "arcs": arcs}
    assert ag.equal(build(**shape), build(**shape))
    assert not ag.equal(build(**shape), build(**shape | change))


def test_equal_detects_which_of_two_copies_of_an_arc_is_missing():
    shape = {"num_nodes": 2, "start": {0}, "accept": {1}}
    one, other = (0, 1, 0, 0, 0.0), (0, 1, 1, 1, 0.0)
    assert not ag.equal(
        build(**shape, arcs=[one, one, other]), build(**shape, arcs=[one, other, other])
    )


def test_equal_ignores_the_order_of_arcs():
    assert ag.equal(build(3, {0}, {2}, arcs), build(3, {0}, {2}, arcs[::-1]))


@given(acceptors(), st.integers(0, 10))
def test_isomorphic_ignores_numbering(graph, seed):
    assert ag.isomorphic(graph, shuffled(graph, seed))


@given(graphs(min_nodes=1), st.integers(0, 10))
def test_isomorphic_compares_unreachable_parts(graph, seed):
    larger = shuffled(graph, seed)
    larger.add_node()
    assert not ag.isomorphic(graph, larger)


def by_trying(first, second):
    """Whether some renumbering of the first graph gives the second."""
    expected = table(second)
    _, start, accept, found = table(first)
    if first.num_nodes() != second.num_nodes() or first.num_arcs() != second.num_arcs():
        return False
    return any(
        sorted(node[n] for n in start) == expected.start
        and sorted(node[n] for n in accept) == expected.accept
        and sorted((node[a.src], node[a.dst], *a[3:]) for a in found)
        == sorted(a[1:] for a in expected.arcs)
        for node in itertools.permutations(range(first.num_nodes()))
    )


# One label and one weight: labels and weights distinguish almost nothing.
plain = {
    "cyclic": True,
    "transducer": False,
    "epsilon": False,
    "num_labels": 1,
    "impossible": False,
    "node_weights": False,
}


@settings(max_examples=100)
@given(graphs(low=0.0, high=0.0, **plain), st.integers(0, 10), st.integers(0, 7), st.integers(0, 4))
def test_isomorphic_agrees_with_trying_every_renumbering(graph, seed, arc, dst):
    other = shuffled(graph, seed)
    if arc < other.num_arcs() and dst < other.num_nodes():
        columns = list(other.arcs())
        columns[1] = columns[1].copy()
        columns[1][arc] = dst
        other = ag.Graph.from_arrays(
            *columns, start=other.start(), accept=other.accept(), num_nodes=other.num_nodes()
        )
    assert ag.isomorphic(graph, other) == by_trying(graph, other)


def both_ways(num_nodes, pairs):
    arcs_ = [(s, d, 0, 0, 0.0) for s, d in pairs] + [(d, s, 0, 0, 0.0) for s, d in pairs]
    return build(num_nodes, set(range(num_nodes)), set(), arcs_)


def test_isomorphic_tells_a_hexagon_from_two_triangles():
    hexagon = both_ways(6, [(n, (n + 1) % 6) for n in range(6)])
    triangles = both_ways(6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    assert not ag.isomorphic(hexagon, triangles)
    assert ag.isomorphic(hexagon, shuffled(hexagon, 1))
    assert ag.isomorphic(triangles, shuffled(triangles, 2))


def test_isomorphic_tells_strongly_regular_graphs_apart():
    # The rook's graph and the Shrikhande graph: 16 nodes with 6 neighbours each, and any two nodes
    # have 2 in common, so no count of neighbours tells them apart.
    cells = list(itertools.product(range(4), repeat=2))
    pairs = list(itertools.combinations(range(16), 2))
    rook = [(s, d) for s, d in pairs if any(map(int.__eq__, cells[s], cells[d]))]
    steps = {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)}
    shrikhande = [
        (s, d)
        for s, d in pairs
        if tuple((x - y) % 4 for x, y in zip(cells[s], cells[d], strict=True)) in steps
    ]
    first, second = both_ways(16, rook), both_ways(16, shrikhande)
    assert first.num_arcs() == second.num_arcs() == 96
    assert not ag.isomorphic(first, second)
    assert ag.isomorphic(first, shuffled(first, 0))
    assert ag.isomorphic(second, shuffled(second, 0))


def test_isomorphic_detects_a_changed_label_far_from_the_start():
    first, second = ag.chain_graph([0, 1, 2]), ag.chain_graph([0, 1, 1])
    assert not ag.isomorphic(first, second)


def test_isomorphic_of_a_very_symmetric_graph_is_fast():
    arcs_ = [(i, j, 0, 0, 0.0) for i in range(30) for j in range(30)]
    graph = build(30, set(range(30)), set(range(30)), arcs_)
    assert ag.isomorphic(graph, shuffled(graph, 1))


@given(acceptors(impossible=False))
def test_a_graph_is_equivalent_to_itself_without_epsilons(graph):
    assert ag.rand_equivalent(graph, ag.remove(graph), seed=0)
    assert ag.rand_equivalent(graph, shuffled(graph, 3), seed=1)


def test_rand_equivalent_detects_another_score_and_another_string():
    graph = acceptor((0, 1), (1,))
    assert not ag.rand_equivalent(graph, acceptor((0, 1), (1,), weight=0.25), seed=0)
    assert not ag.rand_equivalent(graph, acceptor((0, 1)), seed=0)
    assert not ag.rand_equivalent(acceptor((0, 1)), graph, seed=0)


def test_rand_equivalent_of_cyclic_graphs():
    loop = acceptor((0,), (1,), weight=-2.0)
    star = ag.closure(loop)
    assert ag.rand_equivalent(star, ag.remove(star), seed=5)
    assert not ag.rand_equivalent(star, loop, seed=5)


def test_rand_equivalent_raises_if_no_path_could_be_compared():
    first, second = ag.chain_graph([0] * 2000), ag.chain_graph([1] * 2000)
    with pytest.raises(
        ValueError,
        match=r"^rand_equivalent: .* max_length = 1000 .*, but all 100 .*; raise max_len",
    ):
        ag.rand_equivalent(first, second)
    assert not ag.rand_equivalent(first, second, max_length=2000)
    assert ag.rand_equivalent(first, first, max_length=2000)
    assert ag.rand_equivalent(first, second, num_samples=0)
    assert not ag.rand_equivalent(first, ag.chain_graph([0]))  # whose path is short enough
    assert ag.rand_equivalent(ag.Graph(), ag.Graph(), max_length=0)
    with pytest.raises(ValueError, match="max_length must be 0 or more, but it is -1"):
        ag.rand_equivalent(first, second, max_length=-1)


def test_rand_equivalent_is_seeded():
    # Only one string in 64 differs, so a single sample rarely finds it; the seed decides.
    first = ag.linear_graph(6, 2, dtype="float64")
    second = ag.remove(ag.intersect(first, first))
    second = with_weights(second, np.zeros(second.num_arcs()))
    answers = [ag.rand_equivalent(first, second, num_samples=3, seed=s) for s in range(3)]
    assert answers == [True] * 3


def test_float32_and_float64_graphs_of_equal_weights_are_equal():
    graph = build(3, {0}, {2}, arcs)
    assert ag.isomorphic(graph, with_dtype(graph, "float32"))


@pytest.mark.parametrize("compare", [ag.equal, ag.isomorphic])
def test_empty_graphs_are_equal(compare):
    assert compare(ag.Graph(), ag.Graph())


def test_rand_equivalent_in_the_tropical_semiring_compares_best_paths():
    once, twice = acceptor((1, 2)), acceptor((1, 2), (1, 2))
    assert not ag.rand_equivalent(once, twice, seed=0)
    assert ag.rand_equivalent(once, twice, seed=0, semiring="tropical")
    assert not ag.rand_equivalent(once, acceptor((1, 2), weight=1.0), seed=0, semiring="tropical")
    with pytest.raises(ValueError, match="rand_equivalent: the semiring must be 'log' or 'tropi"):
        ag.rand_equivalent(once, twice, semiring="real")


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (ag.Graph(), True),
        (build(2, [0], [1], [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, 0.0)]), True),
        (build(2, [0], [1], [(0, 1, 0, 0, 0.0), (0, 0, 0, 1, 0.0)]), False),
        (build(2, [0], [1], [(0, 1, ag.epsilon, 0, 0.0)]), False),
        (build(2, [0, 1], [1], [(0, 1, 0, 0, 0.0)]), False),
    ],
    ids=["empty", "two labels", "one label twice", "epsilon", "two starts"],
)
def test_determinism(graph, expected):
    assert ag.is_deterministic(graph) is expected
