"""The accuracy that docs/concepts.md promises for float32, against recursions in long double."""

import numpy as np
import pytest
from tools import with_dtype
from trellis_cases import KERNELS, back_off, bigram, ctc, forced, generator, runs

import arcgrad as ag

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double has no more digits than double here"
)

SCORE, FRAME, GRADIENT = 1e-6, 6e-8, 2e-6


def peaked(rng, length, labels):
    """Log-probabilities of a trained network: most frames are nearly certain."""
    array = rng.normal(0, 1, (length, labels))
    array[np.arange(length), rng.integers(0, labels, length)] += 12
    return array - np.log(np.exp(array).sum(1, keepdims=True))


EMISSIONS = {
    "normal": lambda rng, length, labels: rng.normal(0, 1, (length, labels)),
    "wide": lambda rng, length, labels: rng.normal(0, 50, (length, labels)),
    "peaked": peaked,
    "shifted": lambda rng, length, labels: rng.normal(-1000, 3, (length, labels)),
    "impossible": lambda rng, length, labels: np.where(
        rng.random((length, labels)) < 0.2, -np.inf, rng.normal(0, 3, (length, labels))
    ),
}
GRAPHS = {
    "ctc": lambda rng: (ctc(rng.integers(1, 30, 40).tolist()), 30),
    "weighted ctc": lambda rng: (ctc(rng.integers(1, 30, 12).tolist(), rng=rng), 30),
    "bigram": lambda rng: (bigram(20, rng), 20),
    "back-off": lambda rng: (back_off(25, 60, rng), 25),
    "emissions": lambda rng: (None, 30),
}


def log_add(values, groups, size):
    """The log-sum of the values of each group, in long double."""
    most = np.full(size, -np.inf, np.longdouble)
    np.maximum.at(most, groups, values)
    finite = np.where(np.isfinite(most), most, 0)
    sums = np.zeros(size, np.longdouble)
    np.add.at(sums, groups, np.exp(values - finite[groups]))
    with np.errstate(divide="ignore"):
        return np.log(sums) + finite


def exact(graph, array):
    """The forward score and the posteriors of all emissions in long double."""
    array = array.astype(np.longdouble)
    if graph is None:
        total = log_add(array.ravel(), np.repeat(np.arange(len(array)), array.shape[1]), len(array))
        return total.sum(), np.exp(array - total[:, None])
    src, dst, label, _, weight = graph.arcs()
    weight, size = weight.astype(np.longdouble), graph.num_nodes()
    epsilon = label == ag.epsilon

    def step(scores, chosen, begin, end, extra):
        return log_add(scores[begin[chosen]] + weight[chosen] + extra, end[chosen], size)

    def close(scores, begin, end):
        # Epsilon arcs of these graphs do not follow each other.
        return np.logaddexp(scores, step(scores, epsilon, begin, end, 0))

    def ends(nodes):
        scores = np.full(size, -np.inf, np.longdouble)
        scores[nodes] = 0
        return scores

    arcs = ~epsilon
    forward = [close(ends(graph.start()), src, dst)]
    for row in array:
        forward.append(close(step(forward[-1], arcs, src, dst, row[label[arcs]]), src, dst))
    backward = [close(ends(graph.accept()), dst, src)]
    for row in array[::-1]:
        backward.append(close(step(backward[-1], arcs, dst, src, row[label[arcs]]), dst, src))
    backward.reverse()
    last = ends(graph.accept()) + forward[-1]
    if last.max() == -np.inf:
        return last.max(), np.zeros_like(array)
    score = np.log(np.exp(last - last.max()).sum()) + last.max()
    posteriors = np.zeros_like(array)
    for t, row in enumerate(array):
        mass = forward[t][src[arcs]] + weight[arcs] + row[label[arcs]] + backward[t + 1][dst[arcs]]
        np.add.at(posteriors[t], label[arcs], np.exp(mass - score))
    return score, posteriors


@pytest.mark.parametrize("length", [7, 150, 900])
@pytest.mark.parametrize("kind", EMISSIONS)
@pytest.mark.parametrize("name", GRAPHS)
def test_scores_and_gradients_in_float32_are_as_accurate_as_promised(name, kind, length):
    rng = generator(length)
    graph, labels = GRAPHS[name](rng)
    if name.endswith("ctc") and length < 90:
        graph, labels = ctc([3, 1, 1]), 30
    array = EMISSIONS[kind](rng, length, labels).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        expected, posteriors = exact(graph, array)
    for kernel in (None, *KERNELS):
        emissions = [ag.linear_graph(length, labels, array) for _ in range(3)]
        products = emissions
        if graph is not None:
            products = ag.intersect(with_dtype(graph, "float32"), emissions)
            if not runs(kernel, products):
                continue
        elif kernel is not None:
            continue
        with forced(kernel):
            scores = ag.forward_score(products)
            ag.backward(scores)
        if not np.isfinite(expected):
            assert scores[0].item() == expected
            continue
        error = abs(scores[0].item() - expected)
        # Only scores of emissions alone need the allowance per frame: they may add up to 0.
        allowed = SCORE * max(1, abs(expected)) + (FRAME * length if graph is None else 0)
        assert error <= allowed, (kernel, float(error))
        error = abs(emissions[0].grad().weights_view() - posteriors).max()
        assert error <= GRADIENT, (kernel, float(error))
