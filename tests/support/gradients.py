"""First and second derivatives against central finite differences in float64."""

import numpy as np
from tools import set_weights, weights, with_weights

import arcgrad as ag

STEP = 1e-5
TOLERANCE = 1e-7


def leaves(graphs):
    """Float64 copies with weights moved a little, so that no two paths of a graph tie.

    Arc `a` moves by -2^-(a+1)/16: different sets of arcs move by different amounts, all larger
    than the step of the finite differences.
    """
    copies = []
    for graph in graphs:
        jitter = 2.0 ** -(1.0 + np.arange(len(weights(graph))) % 10) / 16
        copies.append(with_weights(graph, weights(graph) - jitter))
    return copies


def direction(graph, phase):
    """A fixed vector over the arcs of a graph, different for every phase."""
    return np.cos(1.0 + 2.3 * np.arange(len(weights(graph))) + 1.7 * phase)


def like(graph, values):
    """A graph of the same structure that carries `values` (a seed or a direction)."""
    return set_weights(graph.detach(), values)


def assert_close(actual, expected, what):
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    assert np.all(np.isfinite(actual)), f"{what} is not finite: {actual}"
    error = float(np.max(np.abs(actual - expected), initial=0.0))
    assert error <= TOLERANCE * scale, f"{what}: {actual}, but finite differences give {expected}"


def assert_gradient(call, *graphs):
    """The gradient of a random combination of the output weights, to every input."""
    inputs = leaves(graphs)
    output = call(*inputs)
    finite = np.isfinite(weights(output))
    seed = np.where(finite, direction(output, 0), 0.0)

    def value(values):
        result = weights(call(*(with_weights(g, v) for g, v in zip(inputs, values, strict=True))))
        return float(seed[finite] @ result[finite])

    actual = ag.grad(output, inputs, like(output, seed))
    base = [weights(graph) for graph in inputs]
    for i in range(len(inputs)):
        # An impossible arc stays impossible under a small change: it has no finite difference.
        moves = np.flatnonzero(np.isfinite(base[i]))
        expected = np.zeros(len(base[i]))
        for arc in moves:
            sides = []
            for sign in (1.0, -1.0):
                values = [v.copy() for v in base]
                values[i][arc] += sign * STEP
                sides.append(value(values))
            expected[arc] = (sides[0] - sides[1]) / (2 * STEP)
        gradient = weights(actual[i])
        assert np.all(np.isfinite(gradient)), f"the gradient of input {i} is {gradient}"
        assert_close(gradient[moves], expected[moves], f"gradient of input {i}")


def assert_second_order(call, *graphs):
    """The product of the Hessian of a score with a vector, by `grad` twice and by `hvp`."""

    def scored(*inputs):
        output = call(*inputs)
        return output if len(weights(output)) == 1 else ag.forward_score(output)

    inputs = leaves(graphs)
    base = [weights(graph) for graph in inputs]
    vectors = [direction(graph, i) for i, graph in enumerate(inputs)]

    def gradient_at(distance):
        shifted = [
            with_weights(graph, values + distance * vector)
            for graph, values, vector in zip(inputs, base, vectors, strict=True)
        ]
        return [weights(graph) for graph in ag.grad(scored(*shifted), shifted)]

    ahead, behind = gradient_at(STEP), gradient_at(-STEP)
    expected = [(a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]

    seeds = [like(graph, vector) for graph, vector in zip(inputs, vectors, strict=True)]
    gradients = ag.grad(scored(*inputs), inputs, create_graph=True)
    # A constant gradient (of a best path) is not on the tape.
    if any(gradient.calc_grad for gradient in gradients):
        twice = ag.grad(gradients, inputs, seeds)
    else:
        twice = [
            like(graph, 0.0 * weights(seed)) for graph, seed in zip(inputs, seeds, strict=True)
        ]
    product = ag.hvp(scored(*inputs), inputs, seeds)
    for i, column in enumerate(expected):
        assert_close(weights(twice[i]), column, f"grad of the gradient of input {i}")
        assert_close(weights(product[i]), column, f"hvp of input {i}")
