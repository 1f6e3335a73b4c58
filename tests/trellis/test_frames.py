"""Scores of emissions alone: a log-sum per frame."""

import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from tools import with_weights

import arcgrad as ag
from arcgrad import _core

TOLERANCE = {"float32": 1e-6, "float64": 1e-10}


@pytest.fixture(params=[False, True], ids=["widest", "baseline"])
def loops(request):
    _core.force_baseline(request.param)
    yield
    _core.force_baseline(False)


def reference(values):
    """The score and the posteriors of each frame, in float64."""
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        sums = np.logaddexp.reduce(values, axis=1, initial=-np.inf)
        posteriors = np.exp(values - sums[:, None])
    score = sums.sum()
    return score, posteriors if math.isfinite(score) else np.zeros_like(values)


def check(values, dtype, *, copy=True):
    graph = ag.linear_graph(*values.shape, values, copy=copy)
    assert ag.explain(graph).kernel == "frames"
    score = ag.forward_score(graph)
    gradient = np.asarray(ag.grad(score, graph).weights_view())
    expected, posteriors = reference(values)
    assert score.item() == pytest.approx(expected, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
    np.testing.assert_allclose(gradient, posteriors, atol=TOLERANCE[dtype])


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [1, 2, 7, 8, 9, 31, 32, 33, 1000])
@pytest.mark.parametrize("scale", [1.0, 50.0, 1e4])
def test_scores_and_posteriors(labels, scale, dtype):
    rng = np.random.default_rng(labels)
    check((scale * rng.normal(size=(5, labels))).astype(dtype), dtype)


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_impossible_labels_and_frames(dtype):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 20)).astype(dtype)
    values[rng.random(values.shape) < 0.3] = -np.inf
    check(values, dtype)
    values[3] = -np.inf
    check(values, dtype)
    assert ag.forward_score(ag.linear_graph(6, 20, values)).item() == -math.inf


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_empty_shapes(shape):
    score = ag.forward_score(ag.linear_graph(*shape))
    assert score.item() == (0.0 if shape[0] == 0 or shape == (1, 1) else -math.inf)


def test_any_strides_are_read_without_a_copy():
    values = np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32)
    check(values.T, "float32", copy=False)
    check(values[::2, ::3], "float32", copy=False)


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bad_emissions_are_named(bad, dtype):
    values = np.zeros((4, 19), dtype)
    values[2, 17] = bad
    good, graph = ag.linear_graph(1, 1), ag.linear_graph(4, 19, values)
    with pytest.raises(ValueError, match="forward_score: the emission of label 17 at frame 2 is"):
        ag.forward_score(graph)
    with pytest.raises(ValueError, match=r"forward_score \(element 1 of 2\): the emission of"):
        ag.forward_score([good, graph])


def test_a_list_is_one_batch_in_which_graphs_may_repeat():
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(length, 9)) for length in (3, 0, 8)]
    one, two, three = (ag.linear_graph(*a.shape, a) for a in arrays)
    plain = ag.Graph.from_arrays([0], [1], [0], start=[0], accept=[1])
    scores = ag.forward_score([one, two, plain, three, one])
    for score, array in zip(
        scores, [arrays[0], arrays[1], None, arrays[2], arrays[0]], strict=True
    ):
        assert score.item() == (0.0 if array is None else pytest.approx(reference(array)[0]))
    ag.backward(scores)
    np.testing.assert_allclose(one.grad().weights_view(), 2 * reference(arrays[0])[1])
    np.testing.assert_allclose(three.grad().weights_view(), reference(arrays[2])[1])


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(3)
    arrays = rng.normal(size=(8, 50, 70)).astype(np.float32)
    found = []
    before = ag.get_num_threads()
    for threads in (1, 2):
        ag.set_num_threads(threads)
        graphs = [ag.linear_graph(50, 70, a) for a in arrays]
        scores = ag.forward_score(graphs)
        ag.backward(scores)
        found.append(
            [s.item() for s in scores] + [g.grad().weights_to_numpy().tobytes() for g in graphs]
        )
    ag.set_num_threads(before)
    assert found[0] == found[1]


@given(st.integers(0, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_derivatives(frames, labels, seed):
    values = np.random.default_rng(seed).normal(size=(frames, labels))
    if frames and seed % 3 == 0:
        values[0, 0] = -np.inf
    graph = ag.linear_graph(frames, labels, values)
    assert ag.explain(with_weights(graph, values)).kernel == "frames"
    assert_gradient(ag.forward_score, graph)
    assert_second_order(ag.forward_score, graph)


def test_the_derivative_of_a_gradient_along_its_seed():
    values = np.random.default_rng(4).normal(size=(3, 4))
    graph = ag.linear_graph(3, 4, values)
    seed = ag.scalar_graph(2.0)
    gradient = ag.grad(ag.forward_score(graph), graph, seed, create_graph=True)
    direction = ag.linear_graph(3, 4, np.random.default_rng(5).normal(size=(3, 4)))
    tangent = ag.grad(gradient, seed, direction).item()
    expected = (reference(values)[1] * direction.weights_view()).sum()
    assert tangent == pytest.approx(expected, rel=1e-12)
