"""Cyclic graphs: best paths in exact arithmetic, sums near the point where they diverge."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from strategies import one_of_each, subsets
from tools import build, weights

import arcgrad as ag

# Rounding drops the small ones from a sum with large ones. A fraction holds the exact sum.
FAR_APART = [0.0, -1.0, -0.5, 0.25, 2.0, 1e-9, -1e-7, -3.0, -1e8, -1e16, -1e30]


def reachable(sources, steps):
    """The nodes that steps (from, to) lead to."""
    seen = set(sources)
    while new := {d for s, d in steps if s in seen} - seen:
        seen |= new
    return seen


def exact_best(start, accept, arcs):
    """The best score as a fraction, None without a path, and inf if a cycle gains."""
    steps = [(s, d) for s, d, *_ in arcs]
    alive = reachable(start, steps) & reachable(accept, [(d, s) for s, d in steps])
    links = [(s, d, Fraction(w)) for s, d, _, _, w in arcs if {s, d} <= alive]
    best = {node: Fraction(0) for node in start & alive}
    for _ in range(len(alive) + 1):
        before = dict(best)
        for s, d, w in links:
            if s in best and (d not in best or best[s] + w > best[d]):
                best[d] = best[s] + w
        if best == before:
            return max((best[node] for node in accept & alive), default=None)
    return math.inf


@st.composite
def cyclic_arcs(draw):
    num_nodes = draw(st.integers(1, 6))
    ends = [(s, d) for s in range(num_nodes) for d in range(num_nodes)]
    arcs = draw(st.lists(one_of_each(ends, [(0, 0)], FAR_APART), max_size=14))
    return num_nodes, draw(subsets(num_nodes)), draw(subsets(num_nodes)), arcs


@given(cyclic_arcs())
def test_best_paths_are_exact_for_any_weights(parts):
    num_nodes, start, accept, arcs = parts
    graph, expected = build(num_nodes, start, accept, arcs), exact_best(start, accept, arcs)
    if expected == math.inf:
        with pytest.raises(ValueError, match=r"viterbi_score: .* no cycle may have a positive"):
            ag.viterbi_score(graph)
        return
    score = ag.viterbi_score(graph).item()
    path = ag.viterbi_path(graph)
    if expected is None:
        assert score == -math.inf
        assert path.num_nodes() == 0
        return
    assert score == pytest.approx(float(expected), rel=1e-12, abs=1e-12)
    assert math.fsum(weights(path)) == pytest.approx(score, rel=1e-12, abs=1e-12)
    assert path.num_arcs() < num_nodes


def test_a_heavy_arc_hides_no_better_path():
    arcs = [(0, 1, 0, 0, 0.0), (0, 2, 0, 0, 2.0), (2, 1, 0, 0, 3.0), (1, 0, 0, 0, -1e30)]
    graph = build(4, {0}, {3}, [*arcs, (1, 3, 0, 0, 0.0)])
    assert ag.viterbi_score(graph).item() == 5.0
    assert weights(ag.viterbi_path(graph)).tolist() == [2.0, 3.0, 0.0]
    distances = ag.shortest_distance(graph, semiring="tropical")
    assert weights(distances).tolist() == [0.0, 5.0, 2.0, 5.0]
    assert ag.forward_score(graph).item() == pytest.approx(np.logaddexp(0.0, 5.0), rel=1e-14)


def ring(order, weight, *, accept):
    """One arc from each node to the next in `order`, and from the last to the first."""
    label = np.zeros(len(order), np.int32)
    return ag.Graph.from_arrays(
        order, np.roll(order, -1), label, None, weight, start=[order[0]], accept=[accept]
    )


def test_small_gains_add_up_along_a_large_cycle():
    count = 3000
    src = np.append(np.tile(np.arange(count), 2), 5)
    dst = np.append(np.tile(np.roll(np.arange(count), -1), 2), 0)
    weight = np.append(np.repeat([-1.0, -1.0 + 1e-9], count), -1e10)
    label = np.zeros(len(src), np.int32)
    graph = ag.Graph.from_arrays(src, dst, label, None, weight, start=[0], accept=[count - 1])
    expected = (count - 1) * (-1.0 + 1e-9)
    assert ag.viterbi_score(graph).item() == pytest.approx(expected, abs=1e-10)


def test_best_paths_through_a_large_cycle_do_not_take_quadratic_time():
    # In this order of nodes, repeated passes over all of them would take minutes.
    order = np.random.default_rng(0).permutation(200_000)
    graph = ring(order, np.full(len(order), -0.5), accept=order[-1])
    assert ag.viterbi_score(graph).item() == -0.5 * (len(order) - 1)


@pytest.mark.parametrize("gain", [1e-15, 1e-14, 1e-13, 3e-13, 1e-12, 1e-11, 1e-9])
def test_a_cycle_with_a_tiny_gain_does_not_trap_the_path(gain):
    half = 100
    weight = np.repeat([1.0, -1.0], half)
    weight[-1] += gain
    graph = ring(np.arange(2 * half), weight, accept=2 * half - 1)
    if gain < 2e-13:  # within the rounding error of zero
        assert ag.viterbi_path(graph).num_arcs() == 2 * half - 1
        assert ag.viterbi_score(graph).item() == 1.0
        return
    for op in (ag.viterbi_path, ag.viterbi_score):
        with pytest.raises(ValueError, match="no cycle may have a positive weight"):
            op(graph)
    with pytest.raises(ValueError, match="no cycle may have a positive weight"):
        ag.shortest_distance(graph, semiring="tropical")


def test_gains_within_rounding_do_not_lengthen_the_best_path():
    # All paths between two nodes have the same sum, except for rounding of decimals.
    rng = np.random.default_rng(0)
    count = 8000
    order = rng.permutation(count)
    src = np.append(order, rng.integers(0, count, 3 * count))
    dst = np.append(np.roll(order, -1), rng.integers(0, count, 3 * count))
    height = rng.integers(-30, 30, count)
    rise, label = height[dst] - height[src], np.zeros(len(src), np.int32)

    def best(weight):
        graph = ag.Graph.from_arrays(
            src, dst, label, None, weight, start=[0], accept=[count - 1], dtype="float64"
        )
        return ag.viterbi_path(graph)

    path, whole = best(rise / 10.0), best(rise.astype(np.float64))
    assert path.num_arcs() == whole.num_arcs()
    assert math.fsum(weights(path)) == pytest.approx(math.fsum(weights(whole)) / 10.0, abs=1e-14)


def test_ties_between_starts_joined_by_cycles_go_to_fewer_arcs():
    arcs = [(0, 1, 0, 0, 0.0), (1, 0, 1, 1, 0.0), (1, 2, 2, 2, 0.0)]
    assert ag.viterbi_path(build(3, {0, 1}, {2}, arcs)).labels_to_list() == [2]


@pytest.mark.parametrize("weight", [-1e-6, -1e-9, -1e-12, -1e-14, -9e-16, -1e-300])
def test_a_loop_near_one_keeps_its_digits(weight):
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, weight), (0, 1, 1, 1, 0.0)])
    expected = -math.log(-math.expm1(weight))
    ratio = math.exp(weight) / -math.expm1(weight)
    score = ag.forward_score(graph)
    assert score.item() == pytest.approx(expected, rel=1e-14)
    assert weights(ag.grad(score, graph)) == pytest.approx([ratio, 1.0], rel=1e-13)
    assert ag.forward_score(ag.remove(graph, 0)).item() == pytest.approx(expected, rel=1e-14)


def test_parallel_loops_are_summed():
    loops = [-1e-12, -40.0, -math.inf, -35.0]
    graph = build(1, {0}, {0}, [(0, 0, 0, 0, weight) for weight in loops])
    left = -math.expm1(-1e-12) - math.exp(-40.0) - math.exp(-35.0)
    assert ag.forward_score(graph).item() == pytest.approx(-math.log(left), rel=1e-12)


@pytest.mark.parametrize("count", [5, 15, 22, 23])
def test_loops_that_sum_to_one_but_for_rounding_diverge(count):
    weight = math.log(1.0 / count)
    graph = build(1, {0}, {0}, [(0, 0, i, i, weight) for i in range(count)])
    with pytest.raises(ValueError, match=r"forward_score: the sum over paths must converge"):
        ag.forward_score(graph)


def test_a_sum_converges_for_any_size_of_intermediate_scores():
    arcs = [(0, 1, 0, 0, 0.0), (0, 2, 0, 0, 2000.0), (2, 1, 0, 0, 3000.0), (1, 0, 0, 0, -1e30)]
    graph = build(4, {0}, {3}, [*arcs, (1, 3, 0, 0, 0.0)])
    assert ag.forward_score(graph).item() == 5000.0
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 1e9), (1, 1, 0, 0, -1.0), (1, 2, 0, 0, -1e9)])
    expected = -math.log(-math.expm1(-1.0))
    assert ag.forward_score(graph).item() == pytest.approx(expected, abs=1e-6)


def test_a_divergent_cycle_is_ignored_without_starts_or_accepts():
    loop = build(1, {0}, set(), [(0, 0, 0, 0, 1.0)])
    assert ag.forward_score(loop).item() == -math.inf
    assert weights(ag.arc_posteriors(loop)).tolist() == [0.0]
    assert ag.remove(loop, 0).num_nodes() == 0
    loop = build(2, set(), {1}, [(0, 0, 0, 0, 1.0), (0, 1, 0, 0, 0.0)])
    assert ag.viterbi_score(loop).item() == -math.inf
    assert ag.viterbi_path(loop).num_nodes() == 0
    assert weights(ag.arc_posteriors(loop, semiring="tropical")).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("semiring", ["log", "tropical"])
@pytest.mark.parametrize("way_on", [[], [(2, 4, 0, 0, 0.0)]])
def test_remove_ignores_an_epsilon_cycle_that_reaches_no_accept(way_on, semiring):
    silent = (ag.epsilon, ag.epsilon)
    arcs = [(0, 1, 0, 0, 0.5), (0, 2, 0, 0, 0.0), (2, 2, *silent, 0.5), *way_on]
    arcs += [(0, 3, 1, 1, 0.0), (3, 1, *silent, 0.25)]
    removed = ag.remove(build(5, {0}, {1}, arcs), semiring=semiring)
    assert (removed.num_nodes(), removed.labels_to_list()) == (2, [0, 1])
    assert weights(removed) == pytest.approx([0.5, 0.25], rel=1e-15)


@pytest.mark.parametrize("semiring", ["log", "tropical"])
def test_remove_ignores_an_unreachable_epsilon_cycle(semiring):
    silent = (ag.epsilon, ag.epsilon)
    arcs = [(0, 0, *silent, 0.5), (0, 0, 0, 0, -1.0), (0, 1, *silent, 0.0), (1, 2, 0, 0, 0.25)]
    removed = ag.remove(build(3, {1}, {2}, arcs), semiring=semiring)
    assert (removed.num_nodes(), weights(removed).tolist()) == (2, [0.25])


def test_a_score_that_overflows_is_infinite():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 1e308), (1, 2, 0, 0, 1e308), (0, 2, 0, 0, 1.0)])
    for op in (ag.forward_score, ag.viterbi_score):
        score = op(graph)
        assert score.item() == math.inf
        assert weights(ag.grad(score, graph)).tolist() == [1.0, 1.0, 0.0]
