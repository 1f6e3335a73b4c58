"""What is particular to minimize and optimize: sizes, which nodes merge, errors."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from spec import TROPICAL, language, strings
from strategies import acceptors, convergent, graphs
from tools import build, weights, with_weights

import arcgrad as ag


def futures(graph):
    """The number of different futures of the nodes of an acyclic deterministic graph, up to a
    constant, by enumeration."""
    found = set()
    for node in range(graph.num_nodes()):
        start = build(1, {0}, {0}, [])
        moved = ag.Graph.from_arrays(
            *graph.arcs()[:4],
            graph.weights_to_numpy(),
            start=[node],
            accept=graph.accept(),
            num_nodes=graph.num_nodes(),
            dtype="float64",
            accept_weights=graph.accept_weights(),
        )
        scores = sorted(language(ag.concat([start, moved]), TROPICAL).items())
        found.add(tuple((string, round(s - scores[0][1], 6)) for string, s in scores))
    return len(found)


@given(graphs(max_nodes=5))
def test_the_result_has_one_node_per_future(graph):
    once = ag.determinize(graph, semiring="tropical")
    out = ag.minimize(once)
    assert language(out, TROPICAL) == pytest.approx(language(once, TROPICAL))
    assert out.num_nodes() == futures(once)
    again = ag.minimize(out)
    assert ag.equal(again, out)


@given(convergent(transducer=False, epsilon=False, max_nodes=4, max_arcs=7, node_weights=False))
def test_an_unweighted_graph_with_cycles_has_no_equivalent_nodes(graph):
    flat = with_weights(graph, np.zeros(graph.num_arcs()))
    once = ag.determinize(flat, semiring="tropical")
    out = ag.minimize(once)
    assert strings(out, TROPICAL) == pytest.approx(strings(once, TROPICAL))
    # Brzozowski: reversing and determinizing twice gives the smallest graph.
    twice = once
    for _ in range(2):
        twice = ag.determinize(ag.reverse(twice), semiring="tropical")
    assert out.num_nodes() == twice.num_nodes()


@given(acceptors(epsilon=False))
def test_reversed_graphs_are_minimized_to_the_same_size(graph):
    flat = with_weights(graph, np.where(np.isinf(weights(graph)), -math.inf, 0.0))
    sizes = set()
    for other in (flat, ag.reverse(ag.reverse(flat)), ag.union([flat, flat])):
        once = ag.determinize(other, semiring="tropical")
        small = ag.minimize(once)
        sizes.add((small.num_nodes(), small.num_arcs()))
    assert len(sizes) == 1


def trie(words):
    return ag.determinize(ag.union([ag.chain_graph(word) for word in words]))


def test_words_share_their_ends():
    out = ag.minimize(trie([[1, 2, 3], [4, 2, 3], [5, 3]]))
    assert (out.num_nodes(), out.num_arcs()) == (4, 5)


def test_nodes_merge_if_their_futures_differ_by_a_constant():
    arcs = [(0, 1, 1, 1, 0.0), (0, 2, 2, 2, 0.0)]
    arcs += [(1, 3, 5, 5, 0.5), (1, 3, 6, 6, 1.5), (2, 3, 5, 5, -2.0), (2, 3, 6, 6, -1.0)]
    graph = build(4, [0], [3], arcs)
    out = ag.minimize(graph)
    assert (out.num_nodes(), out.num_arcs()) == (3, 4)
    assert language(out) == pytest.approx(language(graph))
    assert out.weights_to_list() == [0.0, -2.5, 0.5, 1.5]
    other = with_weights(graph, [0.0, 0.0, 0.5, 1.5, -2.0, -1.5])
    assert ag.equal(ag.minimize(other), other)


def test_the_gradient_follows_a_merge():
    graph = build(
        4, [0], [3], [(0, 1, 1, 1, 0.25), (0, 2, 2, 2, 0.5), (1, 3, 5, 5, 0.75), (2, 3, 5, 5, 1.0)]
    )
    (expected,) = ag.grad(ag.forward_score(graph), [graph])
    (found,) = ag.grad(ag.forward_score(ag.minimize(graph)), [graph])
    assert ag.minimize(graph).num_arcs() == 3
    np.testing.assert_allclose(weights(found), weights(expected))


@pytest.mark.parametrize("gain", [-1.0, 0.0, 2.0])
def test_cycles_may_have_any_weight(gain):
    # Two nodes with the same loop, entered by two labels.
    arcs = [(0, 1, 1, 1, 0.0), (0, 2, 2, 2, 0.0), (1, 1, 3, 3, gain), (2, 2, 3, 3, gain)]
    out = ag.minimize(build(3, [0], [1, 2], arcs))
    assert (out.num_nodes(), out.num_arcs()) == (2, 3)


def test_a_cycle_that_is_unrolled_is_rolled_up():
    ring = [(n, (n + 1) % 12, n % 3, n % 3, -0.5) for n in range(12)]
    out = ag.minimize(build(12, [0], [0, 3, 6, 9], ring))
    assert (out.num_nodes(), out.num_arcs()) == (3, 3)
    ring[7] = (7, 8, 1, 1, -0.25)
    assert ag.minimize(build(12, [0], [0, 3, 6, 9], ring)).num_nodes() == 12


def test_transducers_are_minimized_on_pairs_of_labels():
    words = [ag.chain_graph([1, 3], [1, 9]), ag.chain_graph([2, 3], [2, 9])]
    assert ag.minimize(ag.determinize(ag.union(words))).num_arcs() == 3
    words[1] = ag.chain_graph([2, 3], [2, 8])
    assert ag.minimize(ag.determinize(ag.union(words))).num_arcs() == 4


def test_useless_and_impossible_parts_are_left_out():
    arcs = [(0, 1, 1, 1, 0.0), (0, 2, 2, 2, -math.inf), (0, 3, 3, 3, 0.0), (4, 1, 1, 1, 0.0)]
    graph = build(5, [0], [1, 2], arcs)
    assert ag.minimize(graph).labels_to_list() == [1]


def test_large_acyclic_and_cyclic_graphs_have_the_same_result():
    rng = np.random.default_rng(0)
    words = [rng.integers(0, 4, rng.integers(3, 9)).tolist() for _ in range(400)]
    graph = ag.determinize(ag.union([ag.chain_graph([*word, 7]) for word in words]))
    small = ag.minimize(graph)
    # A loop at the start makes the graph cyclic and changes no other future.
    looped = build(
        graph.num_nodes(),
        [0],
        graph.accept().tolist(),
        [(0, 0, 9, 9, -1.0), *zip(*(c.tolist() for c in graph.arcs()), strict=True)],
    )
    cyclic = ag.minimize(looped)
    assert (cyclic.num_nodes(), cyclic.num_arcs()) == (small.num_nodes(), small.num_arcs() + 1)
    assert small.num_nodes() < 0.7 * graph.num_nodes()


def test_a_graph_that_is_not_deterministic_is_refused():
    twice = build(3, [0], [2], [(0, 1, 1, 1, 0.0), (1, 2, 4, 5, 0.0), (1, 0, 4, 5, 0.0)])
    with pytest.raises(ValueError, match="but node 1 has two arcs with label 4:5; determinize it"):
        ag.minimize(twice)
    starts = build(3, [0, 2], [1], [(0, 1, 1, 1, 0.0)])
    with pytest.raises(ValueError, match="but it has start nodes 0 and 2; determinize it first"):
        ag.minimize(starts)
    with pytest.raises(ValueError, match="minimize: weights must be finite or -inf, but arc 0"):
        ag.minimize(ag.chain_graph([1], weights=[math.nan]))


@pytest.mark.parametrize("op", [ag.minimize, ag.optimize])
def test_small_graphs(op):
    assert op(ag.Graph()).num_nodes() == 0
    assert language(op(build(1, [0], [0], []))) == {((), ()): 0.0}
    assert op(build(1, [0], [], [])).num_nodes() == 0
    assert op(ag.chain_graph([1, 2], weights=[0.5, 0.25])).weights_to_list() == [0.5, 0.25]
    assert op(ag.chain_graph([1], dtype="float64")).dtype == "float64"


# optimize


def test_optimize_leaves_out_what_grows():
    # Strings of 0 and 1 with a 1 at the eighth place from the end need 2^8 nodes.
    arcs = [(0, 0, 0, 0, 0.0), (0, 0, 1, 1, 0.0), (0, 1, 1, 1, 0.0)]
    arcs += [(n, n + 1, label, label, 0.0) for n in range(1, 8) for label in (0, 1)]
    graph = build(9, [0], [8], arcs)
    assert ag.optimize(graph, "tropical").num_nodes() == 9
    assert ag.optimize(graph, "tropical", max_growth=40).num_nodes() >= 2**8
    with pytest.raises(ValueError, match=r"max_growth must be 1 or more, but it is 0\.5"):
        ag.optimize(graph, max_growth=0.5)


def test_optimize_keeps_epsilons_whose_removal_grows():
    silent = (ag.epsilon, ag.epsilon, 0.0)
    arcs = [(n, 20, n, n, 0.0) for n in range(20)] + [(20, 21, *silent)]
    arcs += [(21, 22, n, n, 0.0) for n in range(20)]
    arcs += [(20, n, *silent) for n in range(23, 43)] + [(n, 22, *silent) for n in range(23, 43)]
    graph = build(43, [0], [22], [(0, n, 50 + n, 50 + n, 0.0) for n in range(1, 20)] + arcs)
    out = ag.optimize(graph, "tropical", max_growth=1.0)
    assert out.num_arcs() <= graph.num_arcs()
    assert ag.rand_equivalent(out, graph, semiring="tropical", seed=0)


@given(graphs())
def test_optimize_keeps_scores_and_bounds_arcs(graph):
    for growth, semiring, plus in itertools.product(
        (1.0, 3.0), ("log", "tropical"), (np.logaddexp, TROPICAL)
    ):
        if (semiring == "log") is not (plus is np.logaddexp):
            continue
        out = ag.optimize(graph, semiring, growth)
        assert strings(out, plus) == pytest.approx(strings(graph, plus))
        assert out.num_arcs() <= growth * ag.connect(graph).num_arcs()
