"""Scores over all paths: their values, gradients and errors, also of graphs with cycles."""

import math

import numpy as np
import pytest
from hypothesis import given
from strategies import convergent
from tools import acceptor, build, weights, with_weights

import arcgrad as ag


def self_loop(weight, *, then=0.0, dtype="float64"):
    """A loop at the start, and one arc to the accept."""
    arcs = [(0, 0, 0, 0, weight), (0, 1, 1, 1, then)]
    return build(2, {0}, {1}, arcs, dtype=dtype)


def test_the_empty_graph_scores_minus_infinity():
    assert ag.forward_score(ag.Graph()).item() == -math.inf


def test_a_start_that_accepts_scores_zero():
    assert ag.forward_score(build(1, {0}, {0}, [])).item() == 0.0


def test_two_starts_that_accept_are_two_empty_paths():
    assert ag.forward_score(build(2, {0, 1}, {0, 1}, [])).item() == pytest.approx(math.log(2))


def test_is_minus_infinity_with_zero_gradient_when_no_path_is_accepted():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 1.0)])
    score = ag.forward_score(graph)
    assert score.item() == -math.inf
    assert weights(ag.grad(score, graph)).tolist() == [0.0]


@pytest.mark.parametrize("skip", [2, 50, 300])
@pytest.mark.parametrize("mean", [0.0, -5.0, 5.0, -160.0, 160.0, -300.0, 300.0])
def test_does_not_depend_on_the_order_of_arcs(mean, skip):
    # Arcs in topological order use a faster algorithm, unless scores or weights are too far apart.
    rng = np.random.default_rng(0)
    num_nodes = 400
    src = np.repeat(np.arange(num_nodes), 3)
    dst = np.minimum(src + 1 + np.tile([0, 1, skip], num_nodes), num_nodes)
    weight = rng.normal(mean, size=len(src))

    def score_and_posteriors(order):
        graph = ag.Graph.from_arrays(
            src[order],
            dst[order],
            np.zeros_like(src),
            None,
            weight[order],
            start=[0],
            accept=[num_nodes],
        )
        score = ag.forward_score(graph)
        posteriors = np.empty(len(src))
        posteriors[order] = weights(ag.grad(score, graph))
        return score.item(), posteriors

    score, posteriors = score_and_posteriors(np.arange(len(src)))
    other_score, others = score_and_posteriors(rng.permutation(len(src)))
    assert score == pytest.approx(other_score, rel=1e-14)
    np.testing.assert_allclose(posteriors, others, rtol=1e-9, atol=1e-180)


def test_an_impossible_arc_adds_nothing_and_gets_no_gradient():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.5), (0, 1, 1, 1, -math.inf)])
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(0.5, abs=1e-15)
    assert weights(ag.grad(score, graph)).tolist() == [1.0, 0.0]


def test_parts_on_no_accepted_path_are_ignored():
    arcs = [(0, 1, 0, 0, 0.5), (2, 1, 0, 0, 3.0), (0, 3, 0, 0, 3.0)]
    score = ag.forward_score(build(4, {0}, {1}, arcs))
    assert score.item() == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_score_is_a_float64_scalar_graph(dtype):
    score = ag.forward_score(acceptor((0, 1), dtype=dtype))
    assert score.dtype == np.float64
    assert (score.num_nodes(), score.num_arcs()) == (2, 1)
    assert score.labels_to_list() == [ag.epsilon]


def test_float32_weights_are_summed_in_float64():
    graph = ag.chain_graph([0] * 10_000, weights=np.full(10_000, np.float32(0.1)))
    assert ag.forward_score(graph).item() == pytest.approx(
        10_000 * float(np.float32(0.1)), rel=1e-12
    )


def test_huge_and_tiny_weights_neither_overflow_nor_underflow():
    graph = acceptor((0,), (1,), weight=1e6)
    assert ag.forward_score(graph).item() == pytest.approx(1e6 + math.log(2), abs=1e-9)
    graph = acceptor((0,), (1,), weight=-1e6)
    assert ag.forward_score(graph).item() == pytest.approx(-1e6 + math.log(2), abs=1e-9)


@pytest.mark.parametrize("weight", [-5.0, -1.0, -0.1, -1e-6])
def test_a_self_loop_is_a_geometric_series(weight):
    graph = self_loop(weight)
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(-math.log(-math.expm1(weight)), rel=1e-9)
    ratio = math.exp(weight) / -math.expm1(weight)
    assert weights(ag.grad(score, graph)) == pytest.approx([ratio, 1.0], rel=1e-7)


@given(convergent(node_weights=False))
def test_cycles_agree_with_a_matrix_inverse(graph):
    num_nodes = graph.num_nodes()
    matrix = np.zeros((num_nodes, num_nodes))
    np.add.at(matrix, (graph.src_nodes(), graph.dst_nodes()), np.exp(weights(graph)))
    sums = np.linalg.inv(np.eye(num_nodes) - matrix)
    total = sums[np.ix_(graph.start(), graph.accept())].sum()
    expected = math.log(total) if total > 0 else -math.inf
    assert ag.forward_score(graph).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("size", [1.0, 100.0, 700.0, 1e5])
def test_a_cycle_of_large_weights_may_converge(size):
    # One arc of the cycle has a large weight, but the cycle weighs -1 in total.
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, size), (1, 0, 0, 0, -size - 1.0)])
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(size - math.log(-math.expm1(-1.0)), rel=1e-12)
    rounds = 1.0 / -math.expm1(-1.0)
    assert weights(ag.grad(score, graph)) == pytest.approx([rounds, rounds - 1.0], rel=1e-9)


def test_a_large_component_agrees_with_a_matrix_inverse():
    rng = np.random.default_rng(0)
    matrix = rng.uniform(size=(100, 100)) * (rng.uniform(size=(100, 100)) < 0.1)
    matrix *= 0.95 / max(abs(np.linalg.eigvals(matrix)))
    src, dst = np.nonzero(matrix)
    graph = ag.Graph.from_arrays(
        src, dst, src, weight=np.log(matrix[src, dst]), start=[0, 1], accept=[98, 99]
    )
    sums = np.linalg.inv(np.eye(100) - matrix)
    total = sums[:2, 98:].sum()
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(math.log(total), abs=1e-12)
    expected = sums[:2].sum(0)[src] * matrix[src, dst] * sums[:, 98:].sum(1)[dst] / total
    assert weights(ag.grad(score, graph)) == pytest.approx(expected, abs=1e-10)


def test_the_largest_component_agrees_with_a_linear_system():
    # A ring through all nodes, arcs to near ones, and arcs between any two.
    size, rng = 2048, np.random.default_rng(0)
    nodes = np.arange(size)
    src = np.concatenate([nodes, nodes, rng.integers(0, size, 100)])
    dst = np.concatenate([np.roll(nodes, -1), (nodes + 3) % size, rng.integers(0, size, 100)])
    value = rng.uniform(0.1, 1.0, len(src))
    value *= rng.uniform(0.9, 0.99, size)[src] / np.bincount(src, value, size)[src]
    graph = ag.Graph.from_arrays(
        src, dst, src % 5, weight=np.log(value), start=[0, 700], accept=[1999, 3], num_nodes=size
    )
    matrix = np.eye(size)
    np.add.at(matrix, (src, dst), -value)
    ends = np.zeros((2, size))
    ends[0, [0, 700]] = ends[1, [1999, 3]] = 1.0
    before, after = np.linalg.solve(matrix.T, ends[0]), np.linalg.solve(matrix, ends[1])
    total = before @ ends[1]
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(math.log(total), abs=1e-10)
    expected = before[src] * value * after[dst] / total
    np.testing.assert_allclose(weights(ag.grad(score, graph)), expected, rtol=1e-8, atol=1e-10)


def ring(size, weight, chords=0, seed=0):
    """A cycle through all nodes, in a random order, and further arcs."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    src = np.concatenate([order, rng.integers(0, size, chords)])
    dst = np.concatenate([np.roll(order, -1), rng.integers(0, size, chords)])
    values = np.full(len(src), weight) + rng.uniform(-0.2, 0.2, len(src))
    values[size:] -= 4.0
    return ag.Graph.from_arrays(
        src, dst, src % 5, weight=values, start=[order[0]], accept=[order[-1]], num_nodes=size
    )


def test_a_long_ring_is_summed():
    size = 2100
    graph = ring(size, -0.001)
    values = weights(graph)
    loop, last = values.sum(), values[:-1].sum()
    total = last - np.log(-np.expm1(loop))
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(total, rel=1e-12)
    # Every arc is taken once per turn, and all but one are taken once more.
    turns = -1.0 - 1.0 / np.expm1(loop)
    expected = turns + np.r_[np.ones(size - 1), 0.0]
    np.testing.assert_allclose(weights(ag.grad(score, graph)), expected, rtol=1e-10)


@pytest.mark.parametrize(("size", "chords"), [(100_000, 0), (3_000, 500), (700, 2_000)])
def test_sparse_components_agree_with_iteration_to_second_order(size, chords):
    graph = ring(size, -1.0 if chords else -1e-4, chords)
    src, dst, *_ = (np.asarray(x) for x in graph.arcs())
    factor = np.exp(weights(graph))
    start, end = graph.start()[0], graph.accept()[0]

    def sums(source, along, against):
        # The Neumann series, until the last term is negligible.
        term = np.zeros(size)
        term[source] = 1.0
        total = term.copy()
        while (term > 1e-18 * total).any():
            term = np.bincount(against, term[along] * factor, size)
            total += term
        return total

    if not chords:
        assert math.isfinite(ag.forward_score(graph).item())
        return
    before, after = sums(start, src, dst), sums(end, dst, src)
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(math.log(before[end]), rel=1e-12)
    gradient = ag.grad(score, graph)
    expected = before[src] * factor * after[dst] / before[end]
    np.testing.assert_allclose(weights(gradient), expected, rtol=1e-9, atol=1e-15)
    # The second order against finite differences of the gradient.
    vector = np.random.default_rng(1).normal(size=len(src))
    (product,) = ag.hvp(ag.forward_score(graph), [graph], [with_weights(graph, vector)])
    step = 1e-5
    gradients = []
    for sign in (1, -1):
        moved = with_weights(graph, weights(graph) + sign * step * vector)
        gradients.append(weights(ag.grad(ag.forward_score(moved), moved)))
    difference = (gradients[0] - gradients[1]) / (2 * step)
    np.testing.assert_allclose(weights(product), difference, atol=1e-7)


@pytest.mark.parametrize(("size", "radius"), [(2100, "1.00005"), (20_000, "1.00001")])
def test_a_divergent_ring_is_named_with_its_radius(size, radius):
    nodes = np.arange(size)
    values = np.zeros(size)
    values[7] = 0.1 if size == 2100 else 0.2
    graph = ag.Graph.from_arrays(
        nodes, np.roll(nodes, -1), nodes, weight=values, start=[0], accept=[3]
    )
    with pytest.raises(ValueError, match=rf"nodes \{{0, 1, .*\.\.\.\}} has radius {radius}"):
        ag.forward_score(graph)


def test_a_large_component_that_is_dense_is_refused():
    size, rng = 6_000, np.random.default_rng(0)
    nodes = np.arange(size)
    src = np.concatenate([nodes, rng.integers(0, size, 100_000)])
    dst = np.concatenate([np.roll(nodes, 1), rng.integers(0, size, 100_000)])
    graph = ag.Graph.from_arrays(
        src, dst, src, weight=np.full(len(src), -9.0), start=[0], accept=[0]
    )
    pattern = r"forward_score: .*at most 4096 nodes that are densely connected, but .*of its 6000"
    with pytest.raises(ValueError, match=pattern):
        ag.forward_score(graph)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_rejects_a_divergent_cycle_and_names_it(weight):
    with pytest.raises(
        ValueError, match=r"forward_score: .*radius.*, but .*nodes \{0\} has radius (1|2.718)"
    ):
        ag.forward_score(self_loop(weight))


def test_rejects_a_divergent_cycle_of_two_nodes():
    arcs = [(0, 1, 0, 0, 1.0), (1, 0, 0, 0, -1.0), (1, 2, 0, 0, 0.0)]
    with pytest.raises(ValueError, match=r"forward_score: .*, but .*nodes \{0, 1\} has radius 1"):
        ag.forward_score(build(3, {0}, {2}, arcs))


@pytest.mark.parametrize(
    "arcs",
    [
        pytest.param([(0, 1, 0, 0, 0.5), (2, 2, 0, 0, 0.0), (2, 1, 0, 0, 0.0)], id="unreachable"),
        pytest.param([(0, 1, 0, 0, 0.5), (0, 2, 0, 0, 0.0), (2, 2, 0, 0, 0.0)], id="dead end"),
    ],
)
def test_a_divergent_cycle_on_no_accepted_path_does_not_matter(arcs):
    score = ag.forward_score(build(3, {0}, {1}, arcs))
    assert score.item() == pytest.approx(0.5, abs=1e-15)


def test_an_impossible_loop_is_not_a_cycle():
    graph = self_loop(-math.inf, then=0.25)
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(0.25, abs=1e-15)
    assert weights(ag.grad(score, graph)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_rejects_nan_and_infinity_and_names_the_arc(weight):
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, weight)])
    with pytest.raises(ValueError, match=rf"forward_score: .*, but .*arc 1 .*{weight}"):
        ag.forward_score(graph)
    with pytest.raises(ValueError, match=r"forward_score: .*, but .*arc 1"):
        ag.forward_score(self_loop_with(weight))


def self_loop_with(weight):
    arcs = [(0, 0, 0, 0, -1.0), (0, 1, 1, 1, weight)]
    return build(2, {0}, {1}, arcs)


def test_the_gradient_sums_to_the_expected_path_length():
    graph = acceptor((0, 1, 0), (1,), weight=0.0)
    gradient = ag.grad(ag.forward_score(graph), graph)
    assert weights(gradient).sum() == pytest.approx((3 + 1) / 2)


def large_graph(scale, dtype="float64"):
    """A graph in no particular order; one of its 800 nodes has thousands of arcs."""
    rng = np.random.default_rng(0)
    src = rng.integers(0, 799, 12_000)
    dst = src + 1 + rng.integers(0, 10_000, 12_000) % (799 - src)
    dst[:3000] = 799
    node = rng.permutation(800)
    values = (scale * rng.normal(size=12_000)).astype(dtype)
    values[rng.integers(0, 12_000, 500)] = -math.inf
    start, accept = node[:3], node[[700, 799]]
    labels = np.zeros(12_000, int)
    graph = ag.Graph.from_arrays(
        node[src], node[dst], labels, weight=values, start=start, accept=accept
    )
    return graph, node


def log_domain(graph, node):
    """The score and the posteriors by plain recursions over the nodes in order."""
    src, dst, _, _, values = graph.arcs()
    values = values.astype(np.float64)
    ahead, behind = np.full(800, -math.inf), np.full(800, -math.inf)
    ahead[graph.start()] = behind[graph.accept()] = 0.0
    for n in node:
        arcs = graph.in_arcs(n)
        ahead[n] = np.logaddexp.reduce([ahead[n], *(ahead[src[arcs]] + values[arcs])])
    for n in node[::-1]:
        arcs = graph.out_arcs(n)
        behind[n] = np.logaddexp.reduce([behind[n], *(behind[dst[arcs]] + values[arcs])])
    score = np.logaddexp.reduce(ahead[graph.accept()])
    return score, np.exp(ahead[src] + values + behind[dst] - score)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e3, 1e6])
def test_large_graphs_agree_with_the_log_domain(scale, dtype):
    graph, node = large_graph(scale, dtype)
    expected, posteriors = log_domain(graph, node)
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(expected, rel=1e-13, abs=1e-9)
    # The reference itself rounds scores of this size.
    tolerance = 1e-6 if dtype == "float32" else 1e-10 * max(1.0, scale)
    assert np.abs(weights(ag.grad(score, graph)) - posteriors).max() < tolerance


def test_the_hessian_of_a_large_graph_agrees_with_finite_differences():
    graph, _ = large_graph(1.0)
    base, vector = weights(graph), np.cos(np.arange(graph.num_arcs()))

    def gradient_at(distance):
        leaf = with_weights(graph, base + distance * vector)
        return weights(ag.grad(ag.forward_score(leaf), leaf))

    expected = (gradient_at(1e-5) - gradient_at(-1e-5)) / 2e-5
    actual = weights(ag.hvp(ag.forward_score(graph), graph, vector))
    assert np.abs(actual - expected).max() < 1e-8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mean", [-1.5, 0.0, 2.0])
def test_far_arcs_give_the_same_score_without_gradients(mean, dtype):
    # Far arcs in topological order use a loop of their own; shuffled arcs do not.
    size, rng = 120_000, np.random.default_rng(0)
    src = np.repeat(np.arange(size - 1), 3)
    dst = rng.integers(src + 1, size)
    dst[::3] = src[::3] + 1
    assert np.mean(dst - src > 2**15) > 1 / 8
    weight = rng.normal(mean, 1.0, len(src)).astype(dtype)
    weight[rng.random(len(src)) < 0.01] = -math.inf
    weight[::3] = np.maximum(weight[::3], -9.0)

    def scores(order):
        graph = ag.Graph.from_arrays(
            src[order], dst[order], order % 4, weight=weight[order], start=[0, 5], accept=[size - 1]
        )
        kept = ag.forward_score(graph)
        assert kept.calc_grad
        with ag.no_grad():
            inside = ag.forward_score(graph)
        graph.calc_grad = False
        without = ag.forward_score(graph)
        assert not without.calc_grad
        return kept.item(), inside.item(), without.item()

    kept, inside, without = scores(np.arange(len(src)))
    assert kept == inside == without
    assert scores(rng.permutation(len(src))) == pytest.approx((kept,) * 3, rel=1e-12)
