"""`sequence_loss`: the score of the emissions minus the score of their product, as one op."""

import math

import numpy as np
import pytest
from tools import weights
from trellis_cases import asg, bigram, ctc, forced

import arcgrad as ag

BOUND = {"float32": 2e-5, "float64": 1e-10}
LABELS = 30


def ragged(dtype):
    """Emissions of five lengths. The graph accepts no path of the third, the fourth has no path."""
    rng = np.random.default_rng(6)
    arrays = [(3 * rng.normal(size=(n, LABELS))).astype(dtype) for n in (40, 33, 36, 25, 300)]
    arrays[2][5, : LABELS - 2] = -np.inf
    arrays[3][7] = -np.inf
    return arrays


def leaves(arrays):
    return [ag.linear_graph(*a.shape, a) for a in arrays]


def by_ops(graphs, emissions, *, normalized):
    scores = ag.forward_score(ag.intersect(graphs, emissions))
    if normalized:
        return ag.subtract(ag.forward_score(emissions), scores)
    return ag.negate(scores)


def fused(graphs, emissions, *, normalized):
    return ag.sequence_loss(graphs, emissions, normalized)


def gradients(call, graphs, arrays, seeds, **options):
    emissions = leaves(arrays)
    losses = call(graphs, emissions, **options)
    factors = [*(graphs if isinstance(graphs, list) else [graphs]), *emissions]
    values = [loss.item() for loss in losses]
    if call is by_ops:  # without a path, the difference of the scores may be NaN
        values = [v if math.isfinite(v) else math.inf for v in values]
        seeds = [s if math.isfinite(v) else 0 for s, v in zip(seeds, values, strict=True)]
    found = ag.grad(losses, factors, [ag.scalar_graph(float(s)) for s in seeds])
    return values, found


def graph_for(kernel):
    rng = np.random.default_rng(7)
    if kernel == "dense":
        return bigram(LABELS - 2, rng)
    return asg([1, 2, 2, 3, LABELS - 3], rng)


def assert_equal(actual, expected, dtype):
    values, grads = actual
    np.testing.assert_allclose(values, expected[0], rtol=1e-6, equal_nan=False)
    for grad, other in zip(grads, expected[1], strict=True):
        assert grad.dtype == other.dtype
        np.testing.assert_allclose(weights(grad), weights(other), atol=BOUND[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["diagonal", "lanes", "dense", "csr", "materialised"])
@pytest.mark.parametrize("stride", [0, 4])
@pytest.mark.parametrize("normalized", [True, False])
def test_losses_equal_the_composed_ops(kernel, dtype, stride, normalized):
    graph, arrays = graph_for(kernel), ragged(dtype)
    for seeds in ((1, 1, 1, 1, 1), (2, 0, -3, 1, 0.5)):
        expected = gradients(by_ops, graph, arrays, seeds, normalized=normalized)
        with forced(kernel, stride=stride):
            actual = gradients(fused, graph, arrays, seeds, normalized=normalized)
        assert_equal(actual, expected, dtype)
    assert actual[0][2:4] == [math.inf, math.inf]


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_graph_for_each_example(dtype, normalized):
    graphs, arrays = [ctc([1, 2, k + 1]) for k in range(5)], ragged(dtype)
    options = {"graphs": graphs, "arrays": arrays, "seeds": [1] * 5, "normalized": normalized}
    assert_equal(gradients(fused, **options), gradients(by_ops, **options), dtype)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [8192, 8193, 8197])
def test_gradients_too_large_for_the_caches(labels, dtype, normalized):
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(n, labels)).astype(dtype) for n in (300, 270)]
    arrays[1][3, 5] = -np.inf
    graphs = [ctc([5, 5, labels - 1]), ctc([7, 8, 9, 10])]
    options = {"graphs": graphs, "arrays": arrays, "seeds": [1, 2], "normalized": normalized}
    assert_equal(gradients(fused, **options), gradients(by_ops, **options), dtype)


@pytest.mark.parametrize("normalized", [True, False])
def test_emissions_used_by_several_examples_and_by_other_ops(normalized):
    array = ragged("float64")[0]
    graphs = [ctc([1, 2, 2]), ctc([4])]
    found = []
    for call in (fused, by_ops):
        emissions = ag.linear_graph(*array.shape, array)
        losses = call(graphs, [emissions, emissions], normalized=normalized)
        others = [ag.forward_score(emissions), ag.forward_score(ag.intersect(ctc([3]), emissions))]
        for _ in range(2):  # the second call adds to the gradient
            ag.backward([*losses, *others], retain_graph=True)
        found.append(weights(emissions.grad()))
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)


@pytest.mark.parametrize("normalized", [True, False])
def test_the_gradient_is_added_to_the_gradient_of_other_ops(normalized):
    array = ragged("float64")[0]
    found = []
    for call in (fused, by_ops):
        emissions = ag.linear_graph(*array.shape, array)
        doubled = ag.scale(emissions, 2.0)
        losses = call([ctc([1, 2])], [emissions], normalized=normalized)
        for target in ([1], [5]):
            losses += call([ctc(target)], [doubled], normalized=normalized)
        ag.backward(losses)
        found.append(weights(emissions.grad()))
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)


@pytest.mark.parametrize("normalized", [True, False])
def test_second_derivatives(normalized):
    arrays = [a.astype("float64") for a in ragged("float64")[:2]]
    found = []
    for call in (fused, by_ops):
        graph, emissions = asg([1, 2, 2], np.random.default_rng(0)), leaves(arrays)
        losses = call(graph, emissions, normalized=normalized)
        factors = [graph, *emissions]
        rng = np.random.default_rng(3)
        vectors = [ag.scale(g.detach(), 0.0) for g in factors]
        for v in vectors:
            v.set_weights(rng.normal(size=v.num_arcs()))
        found.append([weights(g) for g in ag.hvp(losses, factors, vectors)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("call", ["fused", "shared emissions", "transducer"])
@pytest.mark.parametrize("blocked", [[4], [0, 1, 2, 3, 4, 5], []])
def test_the_loss_without_a_path_is_infinite_and_its_gradients_are_zero(call, blocked, normalized):
    array = np.zeros((6, 4))
    array[blocked] = -np.inf
    emissions = ag.linear_graph(6, 4, array)
    graph = ctc([1, 2, 3, 1, 2, 3, 1])  # needs 7 frames
    if call == "transducer":  # not an explicit acceptor, so the loss is composed from scores
        graph = ag.intersect(graph, ag.closure(ag.union([ag.chain_graph([k]) for k in range(4)])))
        graph = ag.project_input(graph)
    graphs, inputs = [graph], [emissions]
    if call == "shared emissions":
        graphs, inputs = [graph, graph], [emissions, emissions]
    losses = ag.sequence_loss(graphs, inputs, normalized)
    assert all(loss.item() == math.inf for loss in losses)
    ag.backward(losses, retain_graph=True)
    assert not weights(emissions.grad()).any()
    first = ag.grad(losses, [emissions], create_graph=True)[0]
    assert not weights(first).any()
    vector = ag.linear_graph(6, 4, np.ones((6, 4)))
    assert not weights(ag.hvp(losses, [emissions], [vector])[0]).any()


@pytest.mark.parametrize("normalized", [True, False])
def test_losses_do_not_depend_on_threads(normalized):
    graphs, arrays = [ctc([1, 2, k + 1]) for k in range(5)], ragged("float32")
    found = []
    before = ag.get_num_threads()
    for threads in (1, 2):
        ag.set_num_threads(threads)
        values, grads = gradients(fused, graphs, arrays, [1] * 5, normalized=normalized)
        found.append([np.array(values), *(weights(g) for g in grads)])
    ag.set_num_threads(before)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True))


def test_without_gradients_nothing_is_recorded():
    emissions = leaves(ragged("float32"))
    with ag.no_grad():
        assert not any(loss.calc_grad for loss in ag.sequence_loss(ctc([1]), emissions, True))


def test_errors_name_the_example():
    arrays = ragged("float32")
    arrays[1][4, 9] = np.nan
    message = r"sequence_loss \(element 1 of 5\): the emission of label 9 at frame 4 is nan"
    with pytest.raises(ValueError, match=message):
        ag.sequence_loss(ctc([1, 2]), leaves(arrays), True)
    # Without the normalizer that emission is not read.
    ag.sequence_loss(ctc([1, 2]), leaves(arrays), False)
    transducer = ag.Graph.from_arrays([0], [1], [1], [2], start=[0], accept=[1])
    with pytest.raises(ValueError, match=r"sequence_loss.*: both graphs must be acceptors"):
        ag.sequence_loss(transducer, leaves(arrays), False)
    with pytest.raises(ValueError, match="sequence_loss: lists must have the same length"):
        ag.sequence_loss([ctc([1])] * 2, leaves(arrays), False)
