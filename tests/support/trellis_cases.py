"""Graphs, emissions and references for the tests of products with dense emissions.

The reference does not run the code under test: emissions become explicit graphs, so that `compose`
materializes the whole product, in float64. `log_total` is a second reference in plain NumPy.
"""

import contextlib
import copy
import itertools
import math
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from gradients import direction, like
from spec import LOG, nodes_as_row, star, times
from strategies import grid, one_of_each, subsets
from strategies import weights as grid_weights
from tools import build, weights, with_dtype, with_weights

import arcgrad as ag
from arcgrad import _core

KERNELS = ("diagonal", "lanes", "dense", "csr")
ANY_GRAPH = ("lanes", "csr")  # the kernels that run every graph without an epsilon cycle

# Bounds on the error: of a score relative to it, of gradients, and of Hessian-vector products.
BOUNDS = {"float32": (1e-6, 2e-6, 1e-5), "float64": (1e-10, 1e-10, 1e-8)}


# Forcing


@contextlib.contextmanager
def forced(kernel=None, *, baseline=False, stride=0):
    """Run with one kernel, without AVX2, or with every `stride`-th frame kept."""
    _core.force_kernel(kernel)
    _core.force_baseline(baseline)
    _core.force_history_stride(stride)
    try:
        yield
    finally:
        _core.force_kernel(None)
        _core.force_baseline(False)
        _core.force_history_stride(0)


def runs(kernel, products):
    """Whether a kernel can run these products. Only two kernels may refuse, with an error."""
    if kernel is None:
        return True
    try:
        with forced(kernel), ag.no_grad():
            ag.forward_score(products)
    except ValueError as error:
        if kernel in ANY_GRAPH or kernel not in str(error):
            raise
        return False
    return True


def is_deferred(graph):
    """Whether a product is not materialized yet."""
    return "product" in repr(graph)


# Graphs. Every builder makes a float64 leaf; weights are multiples of 1/8.


def grid_array(rng, shape):
    return rng.integers(-24, 25, shape) / 8


def grid_value(rng):
    return float(grid_array(rng, ()))


def ctc(target, *, rng=None, blank=0):
    """The alignments of a target, with random arc weights if a generator is given."""
    labels = [blank]
    for label in target:
        labels += [label, blank]
    arcs = []
    for node, label in enumerate(labels):
        arcs.append((node, node, label))
        if node:
            arcs.append((node - 1, node, label))
        if node > 2 and label not in (blank, labels[node - 2]):
            arcs.append((node - 2, node, label))
    # A separate start node: every other node is entered by its own label only.
    start = len(labels)
    arcs.append((start, 0, blank))
    if target:
        arcs.append((start, 1, labels[1]))
    arcs = [(s, d, x, x, 0.0 if rng is None else grid_value(rng)) for s, d, x in arcs]
    accept = {len(labels) - 1, max(0, len(labels) - 2)} | (set() if target else {start})
    return build(len(labels) + 1, {start}, accept, arcs)


def asg(target, rng):
    """A chain with weighted loops and steps."""
    arcs = []
    for node, label in enumerate(target, 1):
        arcs.append((node - 1, node, label, label, grid_value(rng)))
        arcs.append((node, node, label, label, grid_value(rng)))
    return build(len(target) + 1, {0}, {len(target)}, arcs)


def bigram(num_labels, rng, *, ends=False, missing=0.0):
    """Dense transitions, optionally with end scores on epsilon arcs, or without some arcs."""
    nodes = range(1, num_labels + 1)
    pairs = [(0, d) for d in nodes] + [(s, d) for s in nodes for d in nodes]
    value = grid_array(rng, len(pairs)).tolist()
    kept = rng.random(len(pairs)) >= missing
    arcs = [(s, d, d - 1, d - 1, w) for (s, d), w, k in zip(pairs, value, kept, strict=True) if k]
    if not ends:
        return build(num_labels + 1, {0}, set(range(num_labels + 1)), arcs)
    end = num_labels + 1
    arcs += [(s, end, ag.epsilon, ag.epsilon, grid_value(rng)) for s in nodes]
    return build(num_labels + 2, {0}, {end}, arcs)


def flower(num_labels, rng):
    """One node with a loop per label."""
    return build(1, {0}, {0}, [(0, 0, c, c, grid_value(rng)) for c in range(num_labels)])


def back_off(num_labels, num_bigrams, rng):
    """A bigram with back-off: node 0 has the unigrams, and epsilon arcs lead to it."""
    arcs = [(0, c + 1, c, c, grid_value(rng)) for c in range(num_labels)]
    arcs += [(c + 1, 0, ag.epsilon, ag.epsilon, grid_value(rng)) for c in range(num_labels)]
    for pair in rng.choice(num_labels**2, num_bigrams, replace=False).tolist():
        s, d = divmod(pair, num_labels)
        arcs.append((s + 1, d + 1, d, d, grid_value(rng)))
    return build(num_labels + 1, {0}, set(range(num_labels + 1)), arcs)


def rivals():
    """Two parallel loops: accumulated rounding errors show in their posteriors."""
    arcs = [(0, 1, 0), (0, 2, 1), (1, 1, 0), (1, 1, 2), (2, 2, 1), (2, 2, 2)]
    return build(3, {0}, {1, 2}, [(s, d, c, c, 0.0) for s, d, c in arcs])


@st.composite
def free_graphs(draw, *, transducer, epsilon, num_labels=3, max_nodes=5, max_arcs=10):
    """A side and any graph whose epsilon arcs on that side form no cycle."""
    side = draw(st.sampled_from(["input", "output"]))
    num_nodes = draw(st.integers(0, max_nodes))
    start, accept = (draw(subsets(num_nodes)) for _ in range(2))
    node = draw(st.permutations(range(num_nodes)))
    rank = {n: k for k, n in enumerate(node)}
    labels = range(ag.epsilon if epsilon or transducer else 0, num_labels)
    choices = []
    for i in labels:
        for o in labels if transducer else (i,):
            matched = i if side == "input" else o
            if matched == ag.epsilon and not epsilon:
                continue
            choices += [
                (s, d, i, o)
                for s in node
                for d in node
                if matched != ag.epsilon or rank[s] < rank[d]
            ]
    arcs = []
    if choices:
        values = grid_weights()
        arcs = draw(st.lists(one_of_each(choices, values), max_size=max_arcs))
        if draw(st.integers(0, 3)):
            # Most graphs have a path through all nodes.
            start.add(node[0])
            accept.add(node[-1])
            steps = itertools.pairwise(node)
            label = 0 if not transducer else draw(st.integers(0, num_labels - 1))
            arcs += [(s, d, label, label, draw(grid(impossible=False))) for s, d in steps]
    return side, build(num_nodes, start, accept, arcs)


def seeded(make):
    """A strategy of acceptors that a generator makes; both sides are the same."""
    sides = st.sampled_from(["input", "output", "acceptor"])
    seeds = st.integers(0, 10_000)
    return st.tuples(sides, seeds.map(lambda seed: make(np.random.default_rng(seed))))


def random_target(rng, num_labels, most):
    """Labels of a target without blank, often with repeats."""
    return rng.integers(1, num_labels, rng.integers(0, most + 1)).tolist()


CLASSES = {
    "acceptor": free_graphs(transducer=False, epsilon=False),
    "with epsilons": free_graphs(transducer=False, epsilon=True),
    "transducer": free_graphs(transducer=True, epsilon=False),
    "transducer with epsilons": free_graphs(transducer=True, epsilon=True),
    "ctc": seeded(lambda rng: ctc(random_target(rng, 4, 4))),
    "weighted ctc": seeded(lambda rng: ctc(random_target(rng, 4, 4), rng=rng)),
    "asg": seeded(lambda rng: asg(random_target(rng, 4, 5), rng)),
    "bigram": seeded(lambda rng: bigram(int(rng.integers(1, 20)), rng, missing=0.1)),
    "bigram with ends": seeded(lambda rng: bigram(int(rng.integers(15, 19)), rng, ends=True)),
    "flower": seeded(lambda rng: flower(int(rng.integers(1, 6)), rng)),
    "back-off": seeded(lambda rng: back_off(int(rng.integers(2, 7)), 4, rng)),
}


@dataclass(frozen=True)
class Case:
    """A graph and the emissions of a batch, as float64 arrays [T, C] of many lengths."""

    side: str  # "input": compose(emissions, graph), "output": the other way, or "acceptor"
    graph: ag.Graph
    arrays: list[np.ndarray]

    def narrowed(self, dtype):
        """The case with all numbers rounded to a dtype (and kept in float64)."""
        if dtype == "float64":
            return self
        arrays = [array.astype(dtype).astype("float64") for array in self.arrays]
        return Case(self.side, with_dtype(with_dtype(self.graph, dtype), "float64"), arrays)

    def join(self, graph, emissions):
        if self.side == "input":
            return ag.compose(emissions, graph)
        return (ag.intersect if self.side == "acceptor" else ag.compose)(graph, emissions)

    def leaves(self, dtype):
        """The graph and the dense emissions."""
        return with_dtype(self.graph, dtype), [dense(array, dtype) for array in self.arrays]

    def products(self, dtype="float64"):
        return self.join(*self.leaves(dtype))


def dense(array, dtype="float64", **options):
    return ag.linear_graph(*array.shape, array.astype(dtype), **options)


def explicit(array):
    """The same emissions as a graph that is not dense: an extra isolated node hides its shape."""
    graph = copy.copy(dense(array))
    graph.add_node()
    return with_dtype(graph, "float64")


def random_array(rng, length, num_labels, *, exact=False, impossible=0.1):
    """Emissions with some -inf; exact ones are multiples of 1/8, so that ties are real."""
    shape = (length, num_labels)
    array = grid_array(rng, shape) if exact else rng.normal(size=shape)
    return np.where(rng.random(shape) < impossible, -math.inf, array)


LENGTHS = st.sampled_from([5, 0, 1, 2, 3, 4, 8, 13])


def with_node_weights(graph, rng):
    """The same graph with random node weights, one in eight of them -inf."""
    graph = copy.copy(graph)

    def value():
        return grid_value(rng) if rng.integers(8) else -math.inf

    for node in graph.start().tolist():
        graph.set_start_weight(node, value())
    for node in graph.accept().tolist():
        graph.set_accept_weight(node, value())
    return graph


@st.composite
def cases(draw, kind, *, exact=False, sizes=(1, 2, 3, 9)):
    side, graph = draw(CLASSES[kind])
    if draw(st.integers(0, 2)) == 2:
        graph = with_node_weights(graph, np.random.default_rng(draw(st.integers(0, 1000))))
    most = max([*graph.ilabels().tolist(), *graph.olabels().tolist()], default=-1) + 1
    num_labels = max(1, most + draw(st.sampled_from([0, 0, 0, 1, -1])))
    size = draw(st.sampled_from(sizes))
    longer = draw(st.sampled_from([4, 0]))
    lengths = [longer + t for t in draw(st.lists(LENGTHS, min_size=size, max_size=size))]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    impossible = draw(st.sampled_from([0.0, 0.0, 0.1, 0.4]))
    arrays = [random_array(rng, t, num_labels, exact=exact, impossible=impossible) for t in lengths]
    return Case(side, graph, arrays)


# References


@dataclass(frozen=True)
class Result:
    """Scores, gradients and Hessian-vector products of a batch with one graph."""

    scores: list[float]
    emissions: list[np.ndarray]
    arcs: np.ndarray
    emission_products: list[np.ndarray]
    arc_products: np.ndarray


def differentiate(scores, graph, emissions, *, second=True):
    inputs = [graph, *emissions]
    gradients = [weights(g) for g in ag.grad(scores, inputs)]
    if second:
        vectors = [like(g, direction(g, phase)) for phase, g in enumerate(inputs)]
        products = [weights(g) for g in ag.hvp(scores, inputs, vectors)]
    else:
        products = [np.zeros_like(weights(g)) for g in inputs]
    values = [score.item() for score in scores]
    return Result(values, gradients[1:], gradients[0], products[1:], products[0])


def reference(case, *, second=True):
    """Results of the materialized products, in float64."""
    graph, emissions = with_dtype(case.graph, "float64"), [explicit(x) for x in case.arrays]
    scores = ag.forward_score(case.join(graph, emissions))
    return differentiate(scores, graph, emissions, second=second)


def fused(case, dtype, *, second=True):
    graph, emissions = case.leaves(dtype)
    scores = ag.forward_score(case.join(graph, emissions))
    return differentiate(scores, graph, emissions, second=second)


def assert_near(actual, expected, bound, what):
    """Within the bound, or within the bound relative to the largest of the expected numbers."""
    assert np.all(np.isfinite(actual)), f"{what} is not finite: {actual}"
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    error = float(np.max(np.abs(actual - expected), initial=0.0))
    assert error <= bound * scale, f"{what}: off by {error:.3g}, but {bound * scale:.3g} is allowed"


def assert_scores(actual, expected, bound):
    for i, (score, truth) in enumerate(zip(actual, expected, strict=True)):
        if truth == -math.inf:
            assert score == truth, f"score {i} is {score}, but no path is accepted"
        else:
            assert_near(np.array(score), np.array(truth), bound, f"score {i}, {truth}")


def assert_agrees(actual, expected, dtype, *, gradient_bound=None):
    """Within the bounds for a dtype, and never NaN."""
    loss, gradient, product = BOUNDS[dtype]
    gradient = gradient_bound or gradient
    assert_scores(actual.scores, expected.scores, loss)
    for i, (one, other) in enumerate(zip(actual.emissions, expected.emissions, strict=True)):
        assert_near(one, other, gradient, f"gradient of emissions {i}")
    # The bound of an arc depends on the size of its own gradient.
    scale = np.maximum(1.0, np.abs(expected.arcs))
    assert_near(actual.arcs / scale, expected.arcs / scale, gradient, "gradient of the graph")
    pairs = zip(actual.emission_products, expected.emission_products, strict=True)
    for i, (one, other) in enumerate(pairs):
        assert_near(one, other, product, f"hvp of emissions {i}")
    assert_near(actual.arc_products, expected.arc_products, product, "hvp of the graph")


def same_bits(first, second):
    """Whether two results are equal bit by bit."""

    def parts(r):
        arrays = [r.arcs, r.arc_products, *r.emissions, *r.emission_products]
        return [np.array(r.scores).tobytes(), *(array.tobytes() for array in arrays)]

    return parts(first) == parts(second)


def log_total(graph, side, array):
    """The log-sum over all paths that spell the frames, by products of matrices of scores."""
    count = graph.num_nodes()
    src, dst, ilabel, olabel, weight = graph.arcs()
    label = olabel if side == "output" else ilabel

    def matrix(arcs):
        result = np.full((count, count), -math.inf)
        np.logaddexp.at(result, (src[arcs], dst[arcs]), np.asarray(weight, np.float64)[arcs])
        return result

    silent = star(matrix(label == ag.epsilon), LOG)
    row = nodes_as_row(count, graph.start())
    row[0, graph.start()] += graph.start_weights()
    row = times(row, silent, LOG)
    for frame in array:
        following = np.full_like(row, -math.inf)
        for c, value in enumerate(frame):
            step = times(row, matrix(label == c) + value, LOG)
            following = LOG(following, step)
        row = times(following, silent, LOG)
    ends = row[0, graph.accept()] + graph.accept_weights()
    return float(LOG.reduce(ends, initial=-math.inf))


# Arguments of many tests

every_class = pytest.mark.parametrize("kind", CLASSES)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def generator(seed=0):
    return np.random.default_rng(seed)


def sample_case(kernel, *, count=11, length=40, seed=0):
    """A batch that the kernel can run, of many lengths; its graph is weighted."""
    rng = generator(seed)
    lengths = [length + int(rng.integers(0, 9)) for _ in range(count)]
    if kernel == "diagonal":
        graph = ctc([1, 2, 2, 3, 1, 4], rng=rng)
    elif kernel == "dense":
        graph = bigram(20, rng, ends=True)
    else:
        graph = back_off(6, 12, rng)
    num_labels = int(graph.ilabels().max()) + 1
    return Case("acceptor", graph, [random_array(rng, t, num_labels) for t in lengths])


# Hard emissions


def wrong_peaks(rng, length, num_labels):
    """Confident and wrong: one label per frame is higher by 80."""
    array = rng.normal(size=(length, num_labels))
    array[np.arange(length), rng.integers(0, num_labels, length)] += 80.0
    return array


def dead_frames(rng, length, num_labels):
    array = rng.normal(size=(length, num_labels))
    array[length // 2 : length // 2 + 1] = -math.inf
    return array


HARD = {
    "normal": lambda rng, t, c: rng.normal(size=(t, c)),
    "times 50": lambda rng, t, c: 50 * rng.normal(size=(t, c)),
    "wrong peaks of 80": wrong_peaks,
    "5% impossible": lambda rng, t, c: random_array(rng, t, c, impossible=0.05),
    "half impossible": lambda rng, t, c: random_array(rng, t, c, impossible=0.5),
    "a dead frame": dead_frames,
    "times 1e4": lambda rng, t, c: 1e4 * rng.normal(size=(t, c)),
    "all 1e4": lambda rng, t, c: np.full((t, c), 1e4),
    "all -1e4": lambda rng, t, c: np.full((t, c), -1e4),
    "1e6": lambda rng, t, c: rng.choice([-1e6, 1e6], (t, c)),
    "rows far apart": lambda rng, t, c: rng.normal(size=(t, c)) + 300 * rng.normal(size=(t, 1)),
    "columns far apart": lambda rng, t, c: rng.normal(size=(t, c)) + 60 * rng.normal(size=c),
    "tiny": lambda rng, t, c: 1e-30 * rng.normal(size=(t, c)),
}
GRAPHS = {
    "ctc": lambda rng: (ctc(rng.integers(1, 12, 25).tolist()), 12, 90),
    "tight ctc": lambda rng: (ctc([*range(1, 12)] * 3), 12, 33),
    "weighted ctc": lambda rng: (ctc(rng.integers(1, 12, 10).tolist(), rng=rng), 12, 70),
    "asg": lambda rng: (asg(rng.integers(0, 12, 20).tolist(), rng), 12, 60),
    "bigram": lambda rng: (bigram(18, rng), 18, 30),
    "bigram with ends": lambda rng: (bigram(18, rng, ends=True), 18, 30),
    "back-off": lambda rng: (back_off(12, 40, rng), 12, 50),
    "rivals": lambda rng: (rivals(), 3, 60),
    "sharp bigram": lambda rng: (sharpened(bigram(18, rng), 30.0), 18, 30),
}


def sharpened(graph, factor):
    return with_weights(graph, factor * weights(graph))
