"""Random small graphs for hypothesis.

They are empty, disconnected, have several starts and accepts, start nodes that accept, parallel
arcs, epsilons on either side and `-inf` weights. Weights are multiples of 1/8, so their sums are
exact in float32 and float64 and a tie is a real tie.
"""

import math

import hypothesis.strategies as st
import numpy as np
from tools import build, build_from_arrays, with_weights

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
    """An arc: one choice from every list, joined. One number per arc keeps drawing quick."""
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
    transducer=True,
    epsilon=True,
    impossible=True,
    low=-3.0,
    high=3.0,
    min_nodes=0,
    max_nodes=5,
    max_arcs=8,
    num_labels=2,
):
    """A float64 graph with `calc_grad`; acyclic unless asked otherwise."""
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    start, accept = (draw(subsets(num_nodes)) for _ in range(2))
    pairs = [(s, d) for s in range(num_nodes) for d in range(num_nodes) if cyclic or s < d]
    arcs = []
    if pairs:
        # Without cycles arcs go up along a drawn order, so node ids are in no particular order.
        node = draw(st.permutations(range(num_nodes)))
        ends = [(node[s], node[d]) for s, d in pairs]
        labels = range(ag.epsilon if epsilon else 0, num_labels)
        pairs_of_labels = [(i, o) for i in labels for o in labels if transducer or i == o]
        choices = (ends, pairs_of_labels, weights(low, high, impossible=impossible))
        arcs = draw(st.lists(one_of_each(*choices), max_size=max_arcs))
    make = build_from_arrays if draw(st.booleans()) else build
    return make(num_nodes, start, accept, arcs)


def acceptors(**options):
    return graphs(transducer=False, **options)


def convergent(**options):
    """Graphs with cycles whose sum over all paths is finite."""
    cycles = graphs(cyclic=True, low=-5.0, high=-1.0, **options)
    return cycles.filter(lambda graph: spectral_radius(graph) < 0.9)


def spectral_radius(graph):
    """The largest absolute eigenvalue of the matrix of exp(weight) between nodes."""
    matrix = np.zeros((graph.num_nodes(), graph.num_nodes()))
    np.add.at(matrix, (graph.src_nodes(), graph.dst_nodes()), np.exp(graph.weights_to_numpy()))
    return max(abs(np.linalg.eigvals(matrix)), default=0.0)


def closable(**options):
    """Graphs whose closure has a finite total: one round trip sums to less than 0.8."""
    small = graphs(low=-5.0, high=-1.0, max_nodes=4, max_arcs=6, **options)

    def total(graph):
        from spec import forward_score, language

        return forward_score(language(graph))

    return small.filter(lambda graph: total(graph) < math.log(0.8))


@st.composite
def same_structure(draw, strategy):
    """Two graphs that differ in their weights only."""
    first = draw(strategy)
    values = draw(st.lists(grid(), min_size=first.num_arcs(), max_size=first.num_arcs()))
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
