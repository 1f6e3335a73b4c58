"""Scores of all graphs on all windows of emissions."""

import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction, like
from tools import snapshot, weights, with_dtype, with_weights
from trellis_cases import (
    BOUNDS,
    asg,
    assert_near,
    assert_scores,
    back_off,
    ctc,
    dense,
    every_dtype,
    explicit,
    flower,
    generator,
    log_total,
    with_node_weights,
)

import arcgrad as ag
from arcgrad import _core


def outer_inputs(dtype="float64"):
    rng = generator(9)
    graphs = [ctc([1, 2], rng=rng), ctc([3], rng=rng), flower(4, rng), asg([1, 1, 2], rng)]
    graphs = [*graphs, back_off(4, 5, rng), with_node_weights(asg([2, 3], rng), rng)]
    graphs = [with_dtype(g, dtype) for g in [*graphs, with_node_weights(back_off(3, 4, rng), rng)]]
    emissions = [dense(rng.normal(size=(t, 4)), dtype) for t in (6, 3, 9, 2)]
    return graphs, emissions


def windows(array, window, stride, dilation=1):
    span = (window - 1) * dilation + 1
    return [array[t : t + span : dilation] for t in range(0, len(array) - span + 1, stride)]


@every_dtype
@pytest.mark.parametrize(
    ("window", "stride", "dilation"),
    [(None, 1, 1), (3, 1, 1), (3, 2, 1), (2, 3, 1), (1, 1, 1), (9, 1, 1), (3, 1, 2), (2, 2, 5)],
)
def test_outer_scores_are_those_of_a_loop(window, stride, dilation, dtype):
    graphs, emissions = outer_inputs(dtype)
    options = {"window": window, "stride": stride, "dilation": dilation}
    scores = np.asarray(ag.outer_score(graphs, emissions, **options).weights_view())
    arrays = [np.asarray(e.weights_view(), np.float64) for e in emissions]
    rows = arrays
    if window is not None:
        rows = [w for x in arrays for w in windows(x, window, stride, dilation)]
    assert scores.shape == (len(rows), len(graphs))
    expected = [[log_total(g, "input", x) for g in graphs] for x in rows]
    for row, truth in zip(scores, expected, strict=True):
        assert_scores(row, truth, BOUNDS[dtype][0])


@every_dtype
@pytest.mark.parametrize(
    ("window", "stride", "dilation"),
    [(None, 1, 1), (3, 1, 1), (3, 2, 1), (2, 3, 1), (9, 1, 1), (3, 1, 2), (2, 2, 5)],
)
@pytest.mark.parametrize("semiring", ["log", "tropical"])
def test_gradients_of_outer_scores(window, stride, dilation, semiring, dtype):
    graphs, emissions = outer_inputs(dtype)
    options = {"window": window, "stride": stride, "dilation": dilation, "semiring": semiring}
    table = ag.outer_score(graphs, emissions, **options)
    score_of = ag.forward_score if semiring == "log" else ag.viterbi_score
    finite = np.isfinite(weights(table))
    seed = np.where(finite, direction(table, 3), 0.0)
    inputs = [*graphs, *emissions]
    found = [weights(g) for g in ag.grad(table, inputs, like(table, seed))]
    # The reference: one product per pair.
    expected = [np.zeros_like(weights(g)) for g in inputs]
    seed, row, scores = iter(seed), 0, np.asarray(table.weights_view())
    for b, e in enumerate(emissions):
        array = np.asarray(e.weights_view(), np.float64)
        span = len(array) if window is None else (window - 1) * dilation + 1
        for t in range(0, len(array) - span + 1, stride):
            frames = slice(t, t + span, dilation)
            for k, graph in enumerate(graphs):
                part = explicit(array[frames])
                wide = with_dtype(graph, "float64")
                score = score_of(ag.intersect(wide, part))
                if math.isfinite(score.item()):
                    assert scores[row, k] == pytest.approx(score.item(), rel=1e-5, abs=1e-5)
                gradients = ag.grad(score, [wide, part])
                delta = next(seed)
                expected[k] += delta * weights(gradients[0])
                to = expected[len(graphs) + b].reshape(-1, 4)[frames]
                to += delta * weights(gradients[1]).reshape(-1, 4)
            row += 1
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, BOUNDS[dtype][1], "gradient of an outer score")


@pytest.mark.parametrize("semiring", ["log", "tropical"])
@pytest.mark.parametrize(("window", "dilation"), [(None, 1), (2, 1), (2, 2)])
def test_outer_scores_against_finite_differences(window, dilation, semiring):
    rng = generator(10)
    graphs = [ctc([1], rng=rng), with_node_weights(flower(2, rng), rng)]
    emissions = [dense(rng.normal(size=(t, 2))) for t in (3, 2)]

    def score(*inputs):
        options = {"window": window, "dilation": dilation, "semiring": semiring}
        return ag.outer_score(list(inputs[:2]), list(inputs[2:]), **options)

    assert_gradient(score, *graphs, *emissions)
    assert_second_order(score, *graphs, *emissions)


def test_hessians_of_outer_scores():
    graphs, emissions = outer_inputs()
    inputs = [*graphs, *emissions]
    vectors = [direction(g, phase) for phase, g in enumerate(inputs)]
    seeds = [like(g, v) for g, v in zip(inputs, vectors, strict=True)]
    total = ag.forward_score(ag.outer_score(graphs, emissions, window=2, stride=2))
    found = [weights(g) for g in ag.hvp(total, inputs, seeds)]
    step = 1e-5

    def gradient(distance):
        moved = [
            with_weights(g, weights(g) + distance * v) for g, v in zip(inputs, vectors, strict=True)
        ]
        n = len(graphs)
        score = ag.forward_score(ag.outer_score(moved[:n], moved[n:], window=2, stride=2))
        return [weights(g) for g in ag.grad(score, moved)]

    for hvp, ahead, behind in zip(found, gradient(step), gradient(-step), strict=True):
        assert_near(hvp, (ahead - behind) / (2 * step), 1e-7, "hvp of an outer score")


def test_an_outer_score_is_one_dense_linear_graph():
    graphs, emissions = outer_inputs()
    table = ag.outer_score(graphs, emissions)
    rows, columns = table.weights_view().shape
    assert (rows, columns) == (len(emissions), len(graphs))
    assert snapshot(table)[:7] == snapshot(ag.linear_graph(rows, columns))[:7]
    assert table.calc_grad
    # It is dense emissions again: the output of a layer is the input of the next one.
    again = ag.forward_score(ag.intersect(flower(columns, generator()), table))
    assert ag.grad(again, graphs[0]).num_arcs() == graphs[0].num_arcs()


def test_outer_scores_with_single_graphs_and_empty_lists():
    graphs, emissions = outer_inputs()
    one = ag.outer_score([graphs[0]], [emissions[0]])
    assert one.weights_view().shape == (1, 1)
    assert ag.outer_score(graphs, []).weights_view().shape == (0, len(graphs))
    assert ag.outer_score(graphs, emissions, window=10).weights_view().shape == (0, len(graphs))
    single = ag.outer_score(graphs[0], emissions[0])
    assert single.weights_to_list() == one.weights_to_list()


def test_an_outer_score_without_path_is_impossible():
    emissions = [dense(np.zeros((2, 3))), dense(np.zeros((4, 3)))]
    graphs = [ctc([1, 2, 1]), ctc([1])]
    table = ag.outer_score(graphs, emissions)
    assert np.isneginf(table.weights_view()).tolist() == [[True, False], [False, False]]
    seed = like(table, np.ones(4))
    for gradient in ag.grad(table, [*graphs, *emissions], seed):
        assert np.all(np.isfinite(weights(gradient)))


@pytest.mark.parametrize(
    "options",
    [
        {"window": 0},
        {"window": -1},
        {"window": 2, "stride": 0},
        {"window": 2, "dilation": 0},
        {"dilation": 2},
    ],
)
def test_windows_strides_and_dilations_are_positive(options):
    graphs, emissions = outer_inputs()
    with pytest.raises(ValueError, match=r"outer_score: .*(window|stride|dilation).*, but"):
        ag.outer_score(graphs, emissions, **options)


def test_outer_scores_need_dense_emissions():
    graphs, _ = outer_inputs()
    with pytest.raises(ValueError, match=r"outer_score.*: .*linear.*, but"):
        ag.outer_score(graphs, [graphs[0]])


def test_a_bad_emission_of_an_outer_score_is_named():
    graphs, emissions = outer_inputs()
    emissions[2].set_weight(5 * 4 + 1, math.nan)
    with pytest.raises(ValueError, match=r"outer_score \(element 2 of 4\): .*(frame 5|label 1)"):
        ag.outer_score(graphs, emissions)


@every_dtype
def test_outer_scores_are_bitwise_equal_for_any_number_of_threads(dtype, threads):
    found = []
    for number in (1, 2, 5):
        threads(number)
        graphs, emissions = outer_inputs(dtype)
        table = ag.outer_score(graphs, emissions, window=2)
        ag.backward(table, like(table, np.where(np.isfinite(weights(table)), 1.0, 0.0)))
        found.append([snapshot(table), *(snapshot(g.grad()) for g in (*graphs, *emissions))])
    assert found[0] == found[1] == found[2]


@every_dtype
@pytest.mark.parametrize("count", [1, 3, 9])
def test_overlapping_windows_of_few_examples_are_bitwise_equal_for_any_number_of_threads(
    dtype, count, threads
):
    rng = generator(12)
    arrays = [rng.normal(size=(90 - 7 * i, 6)) for i in range(count)]
    found = []
    for number in (1, 2, 5):
        threads(number)
        graphs = [with_dtype(ag.tokens.ctc_graph([i, 5 - i]), dtype) for i in (1, 2)]
        for graph in graphs:
            graph.calc_grad = True
        emissions = [ag.linear_graph(*a.shape, a.astype(dtype)) for a in arrays]
        table = ag.outer_score(graphs, emissions, window=5, stride=2)
        ag.backward(table)
        found.append([snapshot(table), *(snapshot(g.grad()) for g in (*graphs, *emissions))])
    assert found[0] == found[1] == found[2]


# Scores within the range of a double use a faster loop than scores beyond it.


def outer_table(graphs, emissions, **options):
    """The scores, and the gradients for a seed of ones where they are finite."""
    table = ag.outer_score(graphs, emissions, **options)
    seed = np.where(np.isfinite(weights(table)), 1.0, 0.0)
    return weights(table), [
        weights(g) for g in ag.grad(table, [*graphs, *emissions], like(table, seed))
    ]


@every_dtype
@pytest.mark.parametrize("baseline", [False, True])
@pytest.mark.parametrize("size", [1.0, 30.0, 300.0, 1e5])
@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_outer_scores_of_any_size(size, weight, baseline, dtype):
    rng = generator(11)
    graphs, _ = outer_inputs()
    graphs = [with_weights(g, weight * weights(g)) for g in graphs]
    array = size * rng.normal(size=(25, 4))
    array[3] = -math.inf
    array[7, :3] = -math.inf
    array[12:] /= size  # other windows stay small
    narrow = [with_dtype(g, dtype) for g in graphs]
    _core.force_baseline(baseline)
    try:
        scores, gradients = outer_table(narrow, [dense(array, dtype)], window=3)
    finally:
        _core.force_baseline(False)
    rounded = np.asarray(array, dtype).astype(np.float64)
    wide = [
        with_weights(g, weights(n).astype(np.float64)) for g, n in zip(graphs, narrow, strict=True)
    ]
    # One window at a time is an ordinary product.
    expected = [[log_total(g, "input", w) for g in wide] for w in windows(rounded, 3, 1)]
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(scores.reshape(finite.shape)), finite)
    for row, truth in zip(scores.reshape(finite.shape), expected, strict=True):
        assert_scores(row, truth, BOUNDS[dtype][0])
    frames = gradients[-1].reshape(25, 4)
    assert np.isfinite(frames).all()
    # Each path takes one label of each frame of its window.
    assert frames.sum() == pytest.approx(3 * finite.sum(), rel=1e-5)


@every_dtype
def test_wide_and_ordinary_windows_have_the_same_gradients(dtype):
    """Windows of wide and of ordinary emissions, next to each other and alone."""
    graphs, _ = outer_inputs(dtype)
    rng = generator(12)
    calm = rng.normal(size=(9, 4))
    wild = np.concatenate([calm, 500.0 * rng.normal(size=(3, 4))])
    options = {"window": 3, "stride": 3}
    scores, gradients = outer_table(graphs, [dense(wild, dtype)], **options)
    alone, first = outer_table(graphs, [dense(calm, dtype)], **options)
    _, last = outer_table(graphs, [dense(wild[9:], dtype)], **options)
    assert_near(scores[: len(alone)], alone, 1e-5, "scores")
    for whole, one, other in zip(gradients[:-1], first, last, strict=False):
        assert_near(whole, one + other, 2e-5, "gradient of a graph")
    assert_near(gradients[-1][:36], first[-1], 1e-5, "gradient of emissions")
