"""Path scores of graphs with arcs in topological order, against slower references.

Graphs whose arcs span many nodes run other loops, which prefetch. Their tests lower the thresholds
of these loops, so that thousands of arcs are enough.
"""

import math

import numpy as np
import pytest
from gradients import like
from tools import weights

import arcgrad as ag

NEAR = 64  # the lowered threshold: nodes that near arcs span at most
FAR = 4000  # nodes of a graph with far arcs


@pytest.fixture
def far(threshold):
    """Lower the thresholds above which the loops for far arcs run and prefetch."""
    threshold("near_nodes", NEAR)
    threshold("prefetched_arcs", 1000)


class Arcs:
    """Arcs by ascending source, to the node ``step`` further on, if any, and random later ones."""

    def __init__(self, num_nodes, weight, *, degree=3, impossible=0.0, step=1, starts=(0,), seed=0):
        rng = np.random.default_rng(seed)
        self.num_nodes, self.starts = num_nodes, list(starts)
        self.src = np.repeat(np.arange(num_nodes - 1), degree)
        self.dst = rng.integers(self.src + 1, num_nodes)
        if step is not None:
            self.dst[::degree] = np.minimum(self.src[::degree] + step, num_nodes - 1)
        self.weight = weight(rng, len(self.src))
        self.weight[rng.random(len(self.src)) < impossible] = -math.inf
        self.shuffled = rng.permutation(len(self.src))
        self.direction = rng.normal(size=len(self.src))
        self.seed = rng.normal(size=num_nodes)

    def reaches_far(self):
        """Whether the loops for far arcs run; the number of nodes alone does not decide it."""
        return np.mean(self.dst - self.src > NEAR) > 1 / 8

    def graph(self, order, dtype="float64"):
        return ag.Graph.from_arrays(
            self.src[order],
            self.dst[order],
            np.zeros(len(order), dtype=np.int32),
            None,
            self.weight[order].astype(dtype),
            start=self.starts,
            accept=[self.num_nodes - 1],
            num_nodes=self.num_nodes,
        )

    def results(self, order, dtype="float64"):
        """Scores and derivatives of a graph with arcs in `order`; values of arcs in our order."""
        graph = self.graph(order, dtype)

        def ours(gradient):
            values = np.empty(len(order))
            values[order] = weights(gradient)
            return values

        distances = ag.shortest_distance(graph)
        seed = np.where(np.isfinite(weights(distances)), self.seed, 0.0)
        score = ag.forward_score(graph)
        product = ag.hvp(score, [graph], [self.direction[order]])[0]
        pulled = ag.grad(distances, graph, like(distances, seed), create_graph=True)
        twice = ag.grad(pulled, graph, like(graph, self.direction[order]))
        return {
            "score": np.array([score.item()]),
            "distances": weights(distances),
            "posteriors": ours(ag.grad(score, graph)),
            "arc_posteriors": ours(ag.arc_posteriors(graph)),
            "hvp": ours(product),
            "gradient of distances": ours(pulled),
            "second derivative of distances": ours(twice),
        }


def normal(mean, deviation=1.0):
    return lambda rng, count: rng.normal(mean, deviation, count)


def clipped(deviation):
    return lambda rng, count: np.clip(rng.normal(0.0, deviation, count), -170.0, 170.0)


def steep_at_first(rng, count):
    """Scores soon differ by more than 256 units of 2^256."""
    return rng.normal(np.where(np.arange(count) < 1200, 160.0, 0.5), 1.0)


def hills(rng, count):
    """Scores rise and fall by thousands, several times."""
    return rng.normal(75.0 * np.sin(np.linspace(0.0, 20.0, count)), 1.0)


def of_two_kinds(rng, count):
    """The three arcs of every other node are much heavier."""
    return rng.normal(np.where(np.arange(count) // 3 % 2, 60.0, 0.0), 1.0)


CASES = {
    "level": lambda: Arcs(3000, normal(0.0)),
    "rising": lambda: Arcs(2000, normal(3.0)),
    "falling": lambda: Arcs(2000, normal(-3.0)),
    "steeply rising": lambda: Arcs(1000, normal(160.0)),
    "steeply falling": lambda: Arcs(1000, normal(-160.0)),
    "rugged": lambda: Arcs(1000, clipped(40.0)),
    "as rugged as can be": lambda: Arcs(300, clipped(1e4)),
    "weights of 600": lambda: Arcs(300, normal(0.0, 600.0)),
    "impossible arcs": lambda: Arcs(2000, normal(2.0), impossible=0.3),
    "impossible arcs, falling": lambda: Arcs(2000, normal(-2.0), impossible=0.3),
    "most arcs impossible": lambda: Arcs(1000, normal(2.0), impossible=0.9),
    "far arcs only": lambda: Arcs(2000, normal(1.0), step=None),
    "far arcs only, rugged": lambda: Arcs(2000, clipped(60.0), step=None, degree=1),
    "many starts": lambda: Arcs(2000, normal(1.0), starts=range(0, 2000, 100)),
    "many starts, falling": lambda: Arcs(2000, normal(-1.0), starts=range(0, 2000, 100)),
    "late starts": lambda: Arcs(2000, normal(1.0), starts=[1200, 1700], impossible=0.1),
}
FAR_CASES = {
    "rising": lambda: Arcs(FAR, normal(12.0), impossible=0.01),
    "steep at first": lambda: Arcs(FAR, steep_at_first),
    "falling": lambda: Arcs(FAR, normal(-50.0)),
    "hills": lambda: Arcs(FAR, hills),
    "two heights of starts": lambda: Arcs(FAR, of_two_kinds, step=8, starts=range(8)),
    "rugged": lambda: Arcs(FAR, clipped(40.0)),
    "dead ends": lambda: Arcs(FAR, normal(12.0), step=None, impossible=0.2),
    "most arcs impossible": lambda: Arcs(FAR, normal(50.0), impossible=0.9),
}


ALL_CASES = [*CASES, *(f"far: {name}" for name in FAR_CASES)]


@pytest.fixture(params=ALL_CASES)
def arcs(request):
    """The arcs of a case, with lower thresholds if it needs far arcs."""
    _, kind, name = request.param.rpartition("far: ")
    if not kind:
        return CASES[request.param]()
    request.getfixturevalue("far")
    found = FAR_CASES[name]()
    assert found.reaches_far()
    return found


def test_acyclic_scores_equal_the_general_recursion(arcs):
    found = arcs.results(np.arange(len(arcs.src)))
    general = arcs.results(arcs.shuffled)
    for what, expected in general.items():
        if what in ("score", "distances"):
            np.testing.assert_allclose(found[what], expected, rtol=1e-13, atol=1e-12)
        else:
            scale = np.max(np.abs(expected), initial=1.0)
            np.testing.assert_allclose(
                found[what], expected, rtol=1e-9, atol=1e-11 * scale, err_msg=what
            )


def test_float32_weights_give_the_same_scores(arcs):
    order = np.arange(len(arcs.src))
    arcs.weight = arcs.weight.astype("float32").astype("float64")
    single, double = arcs.results(order, "float32"), arcs.results(order)
    np.testing.assert_array_equal(single["distances"], double["distances"])
    np.testing.assert_allclose(single["posteriors"], double["posteriors"], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("arcs", [c for c in ALL_CASES if "starts" not in c], indirect=True)
def test_posteriors_of_every_cut_sum_to_one(arcs):
    score = ag.forward_score(graph := arcs.graph(np.arange(len(arcs.src))))
    posteriors = weights(ag.grad(score, graph))
    change = np.bincount(arcs.src, posteriors, arcs.num_nodes)
    change -= np.bincount(arcs.dst, posteriors, arcs.num_nodes)
    crossing = np.cumsum(change)[:-1]
    np.testing.assert_allclose(crossing, float(score.item() > -math.inf), atol=1e-9)


@pytest.mark.parametrize("count", [200, FAR])
def test_small_posteriors_are_kept(count, request):
    if count == FAR:
        request.getfixturevalue("far")
    # Node k has an arc to the end, whose weight is lower than the chain by 2 per arc.
    src = np.repeat(np.arange(count), 2)
    dst = np.where(np.arange(2 * count) % 2 == 0, src + 1, count)
    weight = np.where(np.arange(2 * count) % 2 == 0, 2.0, 0.0)
    graph = ag.Graph.from_arrays(
        src, dst, np.zeros_like(src), None, weight, start=[0], accept=[count]
    )
    posteriors = weights(ag.grad(ag.forward_score(graph), graph))[1::2]
    lost = 2.0 * np.arange(200, 0, -1)
    total = np.logaddexp.reduce(np.append(-lost, 0.0))
    np.testing.assert_allclose(posteriors[-200:], np.exp(-lost - total), rtol=1e-12)
    assert not posteriors[:-400].any()


def test_a_gradient_is_added_to_an_existing_one():
    arcs = Arcs(3000, normal(0.0))
    graph = arcs.graph(np.arange(len(arcs.src)))
    once = weights(ag.grad(ag.forward_score(graph), graph))
    ag.backward(ag.forward_score(graph))
    ag.backward(ag.forward_score(graph))
    np.testing.assert_allclose(weights(graph.grad()), 2.0 * once, rtol=1e-15)
    both = ag.add(ag.forward_score(graph), ag.forward_score(graph))
    np.testing.assert_allclose(weights(ag.grad(both, graph)), 2.0 * once, rtol=1e-15)


def test_arcs_on_no_path_have_posterior_zero(far):
    arcs = FAR_CASES["dead ends"]()
    order = np.arange(len(arcs.src))
    graph = arcs.graph(order)
    posteriors = weights(ag.grad(ag.forward_score(graph), graph))
    best = weights(ag.shortest_distance(graph, reverse=True))
    is_dead = ~np.isfinite(best[arcs.dst]) | ~np.isfinite(arcs.weight)
    assert is_dead.any()
    assert not posteriors[is_dead].any()


def test_a_non_finite_seed_gives_a_non_finite_gradient(far):
    arcs = FAR_CASES["rising"]()
    graph = arcs.graph(np.arange(len(arcs.src)))
    seed = ag.scalar_graph(math.inf, dtype="float64")
    gradient = weights(ag.grad(ag.forward_score(graph), graph, seed))
    assert not np.isfinite(gradient[-3:]).all()
    gradient = weights(ag.grad(ag.forward_score(graph), graph, ag.scalar_graph(math.nan)))
    assert np.isnan(gradient[-1])


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e300])
def test_a_non_finite_seed_does_not_reach_arcs_without_a_path_to_it(bad, far):
    # Odd and even nodes are not connected. Scores grow, so that many posteriors underflow.
    arcs = Arcs(FAR, lambda _, count: np.full(count, 2.5), step=2, starts=[0, 1])
    arcs.dst -= (arcs.dst - arcs.src) % 2
    kept = arcs.dst > arcs.src
    arcs.src, arcs.dst, arcs.weight = arcs.src[kept], arcs.dst[kept], arcs.weight[kept]
    assert arcs.reaches_far()
    graph = arcs.graph(np.arange(len(arcs.src)))
    distances = ag.shortest_distance(graph)
    for at in range(2000, 2400, 40):
        seed = np.zeros(arcs.num_nodes)
        seed[at], seed[-1] = bad, 1.0
        gradient = weights(ag.grad(distances, graph, like(distances, seed)))
        assert np.isfinite(gradient[arcs.src % 2 == 1]).all()


def test_the_largest_seed_does_not_overflow(far):
    # Far arcs are impossible, so that every path follows the chain.
    arcs = Arcs(FAR, lambda _, count: np.where(np.arange(count) % 2, -math.inf, 0.0), degree=2)
    assert arcs.reaches_far()
    graph = arcs.graph(np.arange(len(arcs.src)))
    largest = np.finfo(np.float64).max
    seed = ag.scalar_graph(largest, dtype="float64")
    gradient = weights(ag.grad(ag.forward_score(graph), graph, seed))
    np.testing.assert_allclose(gradient[::2] / largest, 1.0, rtol=1e-9)
    assert not gradient[1::2].any()


def first_best_path(arcs, starts, accepts):
    """Score and arcs of the best path, by the rule for ties: an end, then the smallest arc."""
    score = np.full(arcs.num_nodes, -math.inf)
    first = np.full(arcs.num_nodes, -1)
    score[list(accepts)] = 0.0
    for arc in range(len(arcs.src) - 1, -1, -1):
        source, way = arcs.src[arc], arcs.weight[arc] + score[arcs.dst[arc]]
        ends_here = first[source] < 0 and source in accepts
        if way > score[source] or (way == score[source] > -math.inf and not ends_here):
            score[source], first[source] = way, arc
    begin = min(starts, key=lambda node: (-score[node], first[node]))
    path, node = [], begin
    while score[begin] > -math.inf and (arc := first[node]) >= 0:
        path.append(int(arc))
        node = arcs.dst[arc]
    return score[begin], path


def level(rng, count):
    return rng.integers(-2, 2, count).astype(np.float64)


BEST_CASES = {
    "normal": (normal(0.0), 0.0, [0], [FAR - 1]),
    "ties": (level, 0.0, [0], [FAR - 1]),
    "ties, many ends": (level, 0.0, [0, 1, 7], range(0, FAR, 50)),
    "all zero": (lambda _, count: np.zeros(count), 0.0, range(9), range(500, FAR, 3)),
    "downhill": (normal(-3.0), 0.0, range(0, FAR, 999), range(1, FAR, 999)),
    "start at an end": (normal(-3.0), 0.0, [5], [5, FAR - 1]),
    "impossible arcs": (level, 0.6, [0], [FAR - 1, FAR - 9]),
    "no path": (level, 1.0, [0, 3], [FAR - 1]),
    "huge": (normal(0.0, 1e30), 0.1, [0], [FAR - 1]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BEST_CASES)
def test_best_paths_over_far_arcs(name, dtype, far):
    weight, impossible, starts, accepts = BEST_CASES[name]
    arcs = Arcs(FAR, weight, impossible=impossible)
    arcs.weight = arcs.weight.astype(dtype).astype("float64")
    assert arcs.reaches_far()
    score, path = first_best_path(arcs, starts, set(accepts))
    graph = ag.Graph.from_arrays(
        arcs.src,
        arcs.dst,
        np.arange(len(arcs.src)),
        None,
        arcs.weight.astype(dtype),
        start=list(starts),
        accept=list(accepts),
        num_nodes=FAR,
    )
    best = ag.viterbi_path(graph)
    assert best.labels_to_list() == path
    np.testing.assert_array_equal(weights(best), arcs.weight[path])
    total = ag.viterbi_score(graph)
    assert total.item() == score
    taken = np.flatnonzero(weights(ag.grad(total, graph)))
    np.testing.assert_array_equal(taken, path)
