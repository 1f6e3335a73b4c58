"""Random small graphs for hypothesis.

They are empty, disconnected, have several starts and accepts, start nodes that accept, parallel
arcs, epsilons on either side and `-inf` weights. Weights are multiples of 1/8, so their sums are
exact in float32 and float64 and a tie is a real tie.
"""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
from tools import build, build_from_arrays, set_weights, with_weights
from tools import weights as all_weights

import arcgrad as ag


def weights(low=-3.0, high=3.0, *, impossible=True):
    """Weights k/8 from low to high, and a few times -inf."""
    finite = [k / 8 for k in range(int(low * 8), int(high * 8) + 1)]
    # Hypothesis tries the first choices first: zero, then small numbers.
    finite.sort(key=lambda w: (abs(w), w))
    return finite + [-math.inf] * (3 if impossible else 0)


def grid(low=-3.0, high=3.0, *, impossible=True):
    return st.sampled_from(weights(low, high, impossible=impossible))


def subsets(count):
    return st.integers(0, 2**count - 1).map(lambda bits: {n for n in range(count) if bits >> n & 1})


def one_of_each(*choices):
    """An arc: one choice from every list, joined. One number per arc makes drawing fast."""
    sizes = [len(choice) for choice in choices]

    def decode(code):
        arc = ()
        for choice, size in zip(choices, sizes, strict=True):
            code, k = divmod(code, size)
            arc += choice[k] if isinstance(choice[k], tuple) else (choice[k],)
        return arc

    return st.integers(0, math.prod(sizes) - 1).map(decode)


@st.composite
def graphs(
    draw,
    *,
    cyclic=False,
    empty_path=True,
    transducer=True,
    epsilon=True,
    impossible=True,
    low=-3.0,
    high=3.0,
    min_nodes=0,
    max_nodes=5,
    max_arcs=8,
    num_labels=2,
    node_weights=None,
):
    """A float64 graph with `calc_grad`; acyclic unless asked otherwise.

    `node_weights` says whether it has them; None: every third graph has.
    """
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    start, accept = (draw(subsets(num_nodes)) for _ in range(2))
    # Without cycles arcs go up along a drawn order, so node ids are in no particular order.
    node = draw(st.permutations(range(num_nodes)))
    ends = [(s, d) for i, s in enumerate(node) for d in (node if cyclic else node[i + 1 :])]
    labels = range(ag.epsilon if epsilon else 0, num_labels)
    labels = [(i, o) for i in labels for o in labels if transducer or i == o]
    values = weights(low, high, impossible=impossible)
    arcs = []
    if num_nodes > 1 - cyclic and draw(st.integers(0, 3)) < 3:
        # Most graphs have a path through all nodes, which random arcs would rarely make.
        is_sure = cyclic or not empty_path
        along = [value for value in values if value > -math.inf] if is_sure else values
        arcs = [step + draw(one_of_each(labels, along)) for step in itertools.pairwise(node)]
        if cyclic:
            # An arc leads back on that path, or is a loop. Often no arc of that cycle has a label.
            first, last = sorted(draw(st.integers(0, num_nodes - 1)) for _ in range(2))
            arcs.append((node[last], node[first], *draw(one_of_each(labels, along))))
            if epsilon and draw(st.booleans()):
                silent = (ag.epsilon, ag.epsilon)
                for k in (*range(first, last), -1):
                    arcs[k] = (*arcs[k][:2], *silent, arcs[k][4])
        if not empty_path:
            start.discard(node[-1])
        start.add(node[0])
        accept.add(node[-1])
    if not empty_path:
        accept -= start
    if ends:
        more = st.lists(one_of_each(ends, labels, values), max_size=max_arcs - len(arcs))
        arcs = draw(more) + arcs if draw(st.booleans()) else arcs + draw(more)
    make = build_from_arrays if draw(st.booleans()) else build
    graph = make(num_nodes, start, accept, arcs)
    if draw(st.integers(0, 2)) == 2 if node_weights is None else node_weights:
        count = len(start) + len(accept)
        ends = st.lists(st.sampled_from(values), min_size=count, max_size=count)
        set_weights(graph, [*graph.weights_to_list(), *draw(ends)])
    return graph


def acceptors(**options):
    return graphs(transducer=False, **options)


@st.composite
def deterministic(draw, **options):
    """Acyclic acceptors with at most one start node, in which labels choose the arc."""
    graph = draw(acceptors(epsilon=False, **options))
    arcs = {}
    for s, d, label, _, weight in zip(*graph.arcs(), strict=True):
        arcs.setdefault((s, label), (s, d, label, label, weight))
    start, accept = graph.start().tolist()[:1], graph.accept().tolist()
    result = build(graph.num_nodes(), start, accept, arcs.values())
    if graph.has_node_weights():
        ends = *graph.start_weights()[:1], *graph.accept_weights()
        set_weights(result, [*result.weights_to_list(), *ends])
    return result


@st.composite
def convergent(draw, **options):
    """Graphs with cycles whose sum over all paths is finite, often close to divergence."""
    graph = draw(graphs(**{"cyclic": True, "min_nodes": 1} | options))
    return scaled_down(graph, below=0.9, by=draw(st.sampled_from([0, 0, 1, 2, 4])))


def distinct(strategy):
    """Graphs of a strategy in which no two different sums of weights are equal."""

    def shift(graph):
        values = all_weights(graph)
        return with_weights(graph, values + np.sqrt(np.arange(2.0, len(values) + 2)) / 100)

    return strategy.map(shift)


@st.composite
def mergeable(draw, *, cyclic=False, **options):
    """Deterministic graphs, on pairs of labels; in some of them two nodes merge."""
    options = {"node_weights": None} | options
    graph = draw(distinct((convergent if cyclic else graphs)(**options)))
    num_nodes = graph.num_nodes()
    seen, arcs = set(), []
    columns = graph.src_nodes(), graph.dst_nodes(), graph.ilabels(), graph.olabels()
    for src, dst, *labels, weight in zip(
        *(c.tolist() for c in columns), graph.weights_to_list(), strict=True
    ):
        if labels != [ag.epsilon, ag.epsilon] and (src, *labels) not in seen:
            seen.add((src, *labels))
            arcs.append((src, dst, *labels, weight))
    start, accept = graph.start().tolist()[:1], graph.accept().tolist()
    ends = [*graph.start_weights().tolist()[:1], *graph.accept_weights().tolist()]
    if num_nodes and draw(st.booleans()):
        # A copy of a node, entered by an arc of its own from a node before it. It has one future,
        # so that the two nodes are equal for any weights.
        node = draw(st.integers(0, num_nodes - 1))
        out = [arc for arc in arcs if arc[0] == node]
        before = [arc[0] for arc in arcs if arc[1] == node]
        if len(out) + (node in accept) == 1 and before:
            arcs += [(num_nodes, *arc[1:4], arc[4] - 1.0) for arc in out]
            arcs.append((before[0], num_nodes, 7, 7, -1.23))
            accept += [num_nodes] * (node in accept)
            ends += [-0.77] * (node in accept)
            num_nodes += 1
    result = build(num_nodes, start, accept, arcs)
    if graph.has_node_weights():
        set_weights(result, [*result.weights_to_list(), *ends])
    return result


def scaled_down(graph, *, below, by=0):
    """All weights moved by the same multiple of 1/8, so that the spectral radius is just below."""
    radius = spectral_radius(graph)
    if radius == 0.0:
        return graph
    eighths = math.ceil(8 * math.log(below / radius)) - 1 - 8 * by
    return with_weights(graph, graph.weights_to_numpy() + eighths / 8)


@st.composite
def without_gain(draw, **options):
    """Graphs with cycles of weight 0 or less; many arcs have positive weights."""
    graph = draw(graphs(**{"cyclic": True, "min_nodes": 1} | options))
    nodes = graph.num_nodes()
    height = np.array(
        draw(st.lists(grid(-2.0, 2.0, impossible=False), min_size=nodes, max_size=nodes))
    )
    climb = height[graph.dst_nodes()] - height[graph.src_nodes()]
    return with_weights(graph, climb + np.minimum(graph.weights_to_numpy(), 0.0))


def spectral_radius(graph):
    """The largest absolute eigenvalue of the matrix of exp(weight) between nodes."""
    matrix = np.zeros((graph.num_nodes(), graph.num_nodes()))
    np.add.at(matrix, (graph.src_nodes(), graph.dst_nodes()), np.exp(graph.weights_to_numpy()))
    return max(abs(np.linalg.eigvals(matrix)), default=0.0)


@st.composite
def closable(draw, *, cyclic=False, **options):
    """Graphs whose closure has a finite total: one round trip sums to less than 0.8."""
    from spec import total

    small = {"max_nodes": 4, "max_arcs": 6, "empty_path": False, "min_nodes": 2} | options
    graph = draw(convergent(**small) if cyclic else graphs(**small))
    # Every path has an arc, so the total decreases by at least as much.
    excess = total(graph) - math.log(0.8)
    if excess >= 0.0:
        lower = math.floor(8 * excess) + 1 + 8 * draw(st.sampled_from([0, 0, 1]))
        graph = with_weights(graph, graph.weights_to_numpy() - lower / 8)
    return graph


@st.composite
def same_structure(draw, strategy):
    """Two graphs that differ in their weights only."""
    first = draw(strategy)
    count = len(all_weights(first))
    values = draw(st.lists(grid(), min_size=count, max_size=count))
    finite = [max(value, -4.0) for value in values]
    return first, with_weights(first, finite)


@st.composite
def emissions(draw, *, max_length=3, num_labels=2):
    """A dense linear graph."""
    length = draw(st.integers(0, max_length))
    count = length * num_labels
    values = draw(st.lists(grid(), min_size=count, max_size=count))
    array = np.array(values, np.float64).reshape(length, num_labels)
    return ag.linear_graph(length, num_labels, array, dtype="float64")
