"""compose: nodes, epsilon filters, and sizes of products."""

import numpy as np
import pytest
from hypothesis import given
from spec import paths, table
from strategies import graphs
from tools import acceptor, build, snapshot

import arcgrad as ag

eps = ag.epsilon


@given(graphs(), graphs())
def test_the_result_is_connected(first, second):
    result = ag.compose(first, second)
    assert snapshot(ag.connect(result)) == snapshot(result)


@given(graphs(node_weights=False), graphs(node_weights=False))
def test_nodes_are_numbered_breadth_first(first, second):
    num_nodes, start, _, arcs = table(ag.compose(first, second))
    assert start == list(range(len(start)))
    depth = dict.fromkeys(start, 0)
    frontier = list(start)
    while frontier:
        following = []
        for arc in arcs:
            if arc.src in frontier and arc.dst not in depth:
                depth[arc.dst] = depth[arc.src] + 1
                following.append(arc.dst)
        frontier = following
    depths = [depth[node] for node in range(num_nodes)]
    assert depths == sorted(depths)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_interleaved_epsilon_paths_are_counted_once(size):
    # Output epsilons of the first and input epsilons of the second may interleave in many ways.
    first = ag.chain_graph([0] * size + [1], [eps] * size + [1])
    second = ag.chain_graph([eps] * size + [1], [0] * size + [1])
    assert len(paths(ag.compose(first, second))) == 1


def test_silent_arcs_move_alone():
    first = ag.chain_graph([eps, 0], weights=[1.0, 2.0])
    second = ag.chain_graph([eps, 0], weights=[4.0, 8.0])
    result = ag.compose(first, second)
    (path,) = paths(result)
    assert len(path) == 3
    assert ag.forward_score(result).item() == 15.0


def test_one_epsilon_on_each_side_is_not_counted_twice():
    first = build(2, {0}, {0, 1}, [(0, 1, 0, eps, 0.0)])
    second = build(2, {0}, {0, 1}, [(0, 1, eps, 0, 0.0)])
    assert ag.forward_score(ag.compose(first, second)).item() == pytest.approx(np.log(4))


def test_parallel_arcs_match_in_every_combination():
    double = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 0, 0, 0.0)])
    assert ag.compose(double, double).num_arcs() == 4


@pytest.mark.parametrize(
    ("few", "many", "num_labels"),
    [(1, 500, 100), (30, 60, 1000), (60, 64, 40), (65, 65, 300), (300, 200, 129), (64, 8, 3)],
)
def test_wide_nodes_match_every_pair_of_equal_labels(few, many, num_labels):
    rng = np.random.default_rng(few)

    def random_arcs(count):
        labels = rng.integers(0, num_labels, (2, count)).tolist()
        return list(zip(*labels, rng.integers(-8, 8, count).tolist(), strict=True))

    first, second = random_arcs(few), random_arcs(many)
    result = ag.compose(
        build(2, {0}, {1}, [(0, 1, *arc) for arc in first]),
        build(2, {0}, {1}, [(0, 1, *arc) for arc in second]),
    )
    expected = [(i, o, v + w) for i, m, v in first for n, o, w in second if m == n]
    assert sorted(arc[3:] for arc in table(result).arcs) == sorted(expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_product_with_all_strings_is_the_connected_graph(seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, 300, (2, 900))
    graph = ag.Graph.from_arrays(
        *ends, rng.integers(0, 3, 900), start=[0, 1], accept=range(0, 300, 50), num_nodes=300
    )
    everything = build(1, {0}, {0}, [(0, 0, c, c, 0.0) for c in range(3)])
    trimmed = ag.connect(graph)
    assert trimmed.num_nodes() > 50
    assert ag.isomorphic(ag.compose(graph, everything), trimmed)
    assert ag.isomorphic(ag.compose(everything, graph), trimmed)


def test_connecting_follows_arcs_to_earlier_nodes():
    # The start reaches all nodes in one step, but only a long path leads from each to the accept.
    arcs = [(0, n, n, n) for n in range(1, 40)]
    arcs += [(n, n - 1, n, n) for n in range(2, 40)] + [(1, 40, 0, 0)]
    graph = build(41, {0}, {40}, arcs)
    everything = build(1, {0}, {0}, [(0, 0, c, c, 0.0) for c in range(40)])
    assert ag.isomorphic(ag.compose(graph, everything), graph)


def test_with_an_empty_graph_the_result_is_empty():
    some, none = acceptor((0,)), ag.Graph(dtype="float64")
    for result in (ag.compose(some, none), ag.compose(none, some), ag.compose(none, none)):
        assert (result.num_nodes(), result.num_arcs()) == (0, 0)


def test_without_a_common_string_the_result_is_empty():
    result = ag.compose(acceptor((0, 1)), acceptor((0, 0)))
    assert (result.num_nodes(), result.num_arcs()) == (0, 0)


def test_the_operator_is_composition():
    first, second = acceptor((0, 1)), acceptor((0, 1), (1,))
    assert snapshot(first @ second) == snapshot(ag.compose(first, second))


def test_labels_are_input_of_the_first_and_output_of_the_second():
    result = ag.compose(ag.chain_graph([0], [5]), ag.chain_graph([5], [9]))
    assert (result.labels_to_list(), result.labels_to_list(False)) == ([0], [9])


def test_memory_is_proportional_to_the_reachable_nodes():
    # 200,000 x 200,000 pairs do not fit into memory; only 200,001 of them are reachable.
    labels = np.arange(200_000) % 7
    first = ag.chain_graph(labels)
    second = ag.chain_graph(labels)
    assert ag.compose(first, second).num_nodes() == 200_001


def test_labels_may_be_large():
    big = 2**31 - 1
    assert ag.compose(ag.chain_graph([big]), ag.chain_graph([big])).labels_to_list() == [big]


@given(graphs(), graphs())
def test_arc_sorting_changes_nothing(first, second):
    expected = snapshot(ag.compose(first, second))
    first.arc_sort(olabel=True)
    second.arc_sort()
    assert snapshot(ag.compose(first, second)) == expected


def test_a_composition_that_grows_too_large_is_refused():
    # Each string of n labels has 2^n pairs of paths before a label that never matches.
    loops = build(2, {0}, {1}, [(0, 0, 1, 1, 0.0), (0, 0, 1, 1, 0.0), (0, 1, 2, 2, 0.0)])
    chain = ag.chain_graph([1] * 10 + [2])
    assert ag.compose(loops, chain, max_arcs=21).num_arcs() == 21
    pattern = (
        r"compose: the search for the common paths may reach at most 20 arcs \(max_arcs\), but "
        r"that of a graph of 2 nodes and 3 arcs with one of 12 nodes and 11 arcs reached 21 arcs "
        r"and \d+ nodes; .*max_arcs"
    )
    with pytest.raises(ValueError, match=pattern):
        ag.compose(loops, chain, max_arcs=20)
    with pytest.raises(ValueError, match=r"intersect \(element 1 of 2\): .* at most 20 arcs"):
        ag.intersect([chain, loops], chain, max_arcs=20)
    with pytest.raises(ValueError, match="compose: max_arcs must be 0 or more, but it is -1"):
        ag.compose(loops, chain, max_arcs=-1)
    with pytest.raises(ValueError, match=f"compose: max_arcs must fit 64 bits, but it is {2**70}"):
        ag.compose(loops, chain, max_arcs=2**70)


def test_many_pairs_of_start_nodes_are_refused():
    starts = ag.Graph.from_arrays([0], [1], [0], start=np.arange(2000), accept=[1], num_nodes=2000)
    with pytest.raises(ValueError, match=r"may reach at most 1000000 arcs .* reached 0 arcs and"):
        ag.compose(starts, starts, max_arcs=1_000_000)


def test_the_limit_of_a_product_holds_when_it_is_materialized():
    product = ag.intersect(ag.linear_graph(10, 3), closure_of(3), max_arcs=29)
    assert ag.forward_score(product).item() == pytest.approx(10 * np.log(3), rel=1e-6)
    with pytest.raises(ValueError, match=r"intersect: .* may reach at most 29 arcs"):
        product.num_arcs()


def closure_of(labels):
    return build(1, {0}, {0}, [(0, 0, k, k, 0.0) for k in range(labels)])


def test_the_limit_counts_arcs_and_not_the_last_node():
    chain = ag.chain_graph(list(range(100)))
    assert ag.compose(chain, chain, max_arcs=100).num_arcs() == 100


def test_searches_of_many_pairs_count_each_path_once():
    # Words 0 to 0000, and many that no path ends: the table of pairs grows several times.
    rng = np.random.default_rng(0)
    words = [[0] * n for n in range(1, 5)] + [[0, *rng.integers(1, 9, 3)] for _ in range(3000)]
    lexicon = ag.closure(ag.union([ag.chain_graph(word) for word in words]))
    length, counts = 30, [1]
    for n in range(1, length + 1):
        counts.append(sum(counts[max(0, n - 4) : n]))
    result = ag.compose(ag.chain_graph([0] * length), lexicon)
    assert ag.forward_score(result).item() == pytest.approx(np.log(counts[-1]), rel=1e-12)
