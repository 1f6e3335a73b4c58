"""Emissions and weights that are far apart, many, impossible or wrong."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from tools import build, weights, with_dtype, with_weights
from trellis_cases import (
    BOUNDS,
    GRAPHS,
    HARD,
    KERNELS,
    Case,
    assert_agrees,
    assert_near,
    back_off,
    bigram,
    ctc,
    dense,
    every_dtype,
    every_kernel,
    forced,
    fused,
    generator,
    reference,
    rivals,
    runs,
    sample_case,
    sharpened,
)

import arcgrad as ag
from arcgrad import _core

# Hard emissions


@functools.lru_cache(maxsize=1)
def hard_case(graph, emissions, dtype):
    rng = generator(len(graph) + 100 * len(emissions))
    made, num_labels, length = GRAPHS[graph](rng)
    arrays = [HARD[emissions](rng, t, num_labels) for t in (length, length + 1, length)]
    case = Case("acceptor", made, arrays).narrowed(dtype)
    expected = reference(case)
    if emissions == "1e6":
        # In a materialized product, sums of such weights with weights of arcs lose too many digits.
        # Subtracting a constant from all weights of a frame changes no gradient.
        shifted = reference(Case("acceptor", case.graph, [array - 1e6 for array in case.arrays]))
        expected = replace(shifted, scores=expected.scores)
    return case, expected


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("emissions", HARD)
@every_dtype
def test_hard_emissions(graph, emissions, dtype):
    case, expected = hard_case(graph, emissions, dtype)
    for kernel in (None, *KERNELS):
        if not runs(kernel, case.products(dtype)):
            continue
        with forced(kernel):
            assert_agrees(fused(case, dtype), expected, dtype)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("value", [-1e30, -3e38, 1e30])
@every_dtype
def test_huge_emissions_give_no_nan(graph, value, dtype):
    rng = generator()
    made, num_labels, length = GRAPHS[graph](rng)
    array = rng.normal(size=(length, num_labels))
    array[rng.random(array.shape) < 0.2] = value
    case = Case("acceptor", made, [array, np.full((length, num_labels), value)])
    for kernel in (None, *KERNELS):
        if not runs(kernel, case.products(dtype)):
            continue
        with forced(kernel):
            found = fused(case, dtype)
        assert not np.any(np.isnan(found.scores))
        assert all(np.all(np.isfinite(g)) for g in (*found.emissions, found.arcs))
        assert all(np.all(np.isfinite(g)) for g in (*found.emission_products, found.arc_products))


@every_kernel
@every_dtype
def test_heavy_arc_weights(kernel, dtype):
    for factor in (50.0, 1e4):
        case = sample_case(kernel, count=3)
        case = Case("acceptor", sharpened(case.graph, factor), case.arrays).narrowed(dtype)
        if runs(kernel, case.products(dtype)):
            with forced(kernel):
                assert_agrees(fused(case, dtype), reference(case), dtype)


# Long emissions


@pytest.mark.parametrize("length", [1000, 10_000])
@pytest.mark.parametrize("graph", ["ctc", "rivals"])
def test_long_emissions_in_float32(graph, length):
    rng = generator(1)
    made, num_labels = (ctc([1, 2] * 5), 3) if graph == "ctc" else (rivals(), 3)
    case = Case("acceptor", made, [3 * rng.normal(size=(length, num_labels))]).narrowed("float32")
    expected = reference(case, second=False)
    bound = 2e-6 if length <= 1000 else 1e-7 * math.sqrt(length)
    for kernel in (None, *KERNELS):
        if not runs(kernel, case.products("float32")):
            continue
        with forced(kernel):
            found = fused(case, "float32", second=False)
        assert_agrees(found, expected, "float32", gradient_bound=bound)


@pytest.mark.parametrize("graph", ["ctc", "rivals", "bigram", "back-off"])
@every_dtype
def test_hessians_of_long_emissions(graph, dtype):
    # Means over prefixes and suffixes grow with the length and cancel.
    rng = generator(1)
    made = {
        "ctc": lambda: ctc([1, 2] * 5),
        "rivals": rivals,
        "bigram": lambda: bigram(16, rng),
        "back-off": lambda: back_off(3, 4, rng),
    }[graph]()
    num_labels = int(made.ilabels().max()) + 1
    case = Case("acceptor", made, [rng.normal(size=(1000, num_labels))]).narrowed(dtype)
    expected = reference(case)
    for kernel in (None, *KERNELS):
        if not runs(kernel, case.products(dtype)):
            continue
        with forced(kernel):
            assert_agrees(fused(case, dtype), expected, dtype)


def test_a_long_target():
    rng = generator(2)
    graph = ctc(rng.integers(1, 80, 150).tolist())
    case = Case("acceptor", graph, [3 * rng.normal(size=(1000, 80))]).narrowed("float32")
    expected = reference(case, second=False)
    for kernel in ("diagonal", "csr"):
        with forced(kernel):
            assert_agrees(fused(case, "float32", second=False), expected, "float32")


def very_long(kernel):
    rng = generator(4)
    if kernel == "diagonal":
        graph = ctc([1, 2] * 5)
    elif kernel == "dense":
        graph = bigram(16, rng)
    else:
        graph = rivals()
    num_labels = int(graph.ilabels().max()) + 1
    array = rng.normal(size=(100_000, num_labels)).astype(np.float32)
    return ag.linear_graph(*array.shape, array, copy=False), with_dtype(graph, "float32")


@every_kernel
def test_a_hundred_thousand_frames(kernel):
    emissions, graph = very_long(kernel)
    with forced(kernel):
        product = ag.intersect(graph, emissions)
        score = ag.forward_score(product)
        gradient = np.asarray(ag.grad(score, emissions).weights_view(), np.float64)
        scores = np.array(_core.frame_scores(product))
    assert np.max(np.abs(gradient.sum(axis=1) - 1.0)) <= 1e-6
    assert scores.shape == (100_000,)
    assert np.ptp(scores) <= 5e-5
    assert np.max(np.abs(scores - score.item())) <= 5e-5 + 1e-6 * abs(score.item())


@every_kernel
def test_exponents_do_not_overflow_in_long_emissions(kernel):
    emissions, graph = very_long(kernel)
    for value in (-1e6, 1e6):
        num_labels = emissions.weights_view().shape[1]
        flat = ag.linear_graph(5000, num_labels, np.full((5000, num_labels), value, np.float32))
        with forced(kernel):
            score = ag.forward_score(ag.intersect(graph, flat))
            gradient = np.asarray(ag.grad(score, flat).weights_view(), np.float64)
        assert score.item() == pytest.approx(5000 * value, rel=1e-4)
        assert gradient.sum(axis=1) == pytest.approx(np.ones(5000), abs=1e-6)


# Impossible products


@every_kernel
@every_dtype
def test_without_a_path_the_score_is_impossible_and_the_gradient_zero(kernel, dtype):
    case = sample_case(kernel, count=3)
    arrays = [x.copy() for x in case.arrays]
    arrays[0][:] = -math.inf
    arrays[1][-1] = -math.inf
    arrays[2][0] = -math.inf
    dead = Case("acceptor", case.graph, [*arrays, case.arrays[0]])
    with forced(kernel):
        found = fused(dead, dtype)
    assert found.scores[:3] == [-math.inf] * 3
    assert math.isfinite(found.scores[3])
    for gradients in (found.emissions, found.emission_products):
        assert not any(np.any(g) for g in gradients[:3])
        assert np.all(np.isfinite(gradients[3]))
    expected = reference(Case("acceptor", case.graph, [case.arrays[0]]).narrowed(dtype))
    bound = BOUNDS[dtype][1]
    assert_near(found.arcs, expected.arcs, bound, "gradient of the graph")


@every_kernel
@every_dtype
def test_a_graph_without_possible_arcs(kernel, dtype):
    case = sample_case(kernel, count=2)
    graph = with_weights(case.graph, np.full(case.graph.num_arcs(), -math.inf))
    with forced(kernel):
        found = fused(Case("acceptor", graph, case.arrays), dtype)
    assert found.scores == [-math.inf] * 2
    assert not np.any(found.arcs)
    assert not any(np.any(g) for g in found.emissions)


def test_emissions_too_short_for_the_target():
    graph = ctc([1, 1, 1])
    scores = ag.forward_score(ag.intersect(graph, [dense(np.zeros((t, 2))) for t in range(7)]))
    feasible = [math.isfinite(score.item()) for score in scores]
    assert feasible == [False] * 5 + [True] * 2


def test_the_empty_graph_and_unknown_labels():
    for graph in (ag.Graph(dtype="float64"), ag.chain_graph([7, 9]), build(1, {0}, set(), [])):
        emissions = dense(np.zeros((2, 3)))
        score = ag.forward_score(ag.intersect(graph, emissions))
        assert score.item() == -math.inf
        assert not np.any(weights(ag.grad(score, emissions)))
        assert ag.viterbi_score(ag.intersect(graph, emissions)).item() == -math.inf
        assert ag.viterbi_path(ag.intersect(graph, emissions)).num_nodes() == 0


# Bad weights


@every_kernel
@every_dtype
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("op", [ag.forward_score, ag.viterbi_score, ag.viterbi_path])
def test_a_bad_emission_is_named(kernel, dtype, bad, op):
    case = sample_case(kernel, count=4, length=70)
    name = op.__name__
    spelled = "nan" if math.isnan(bad) else "inf"
    for frame, label in ((0, 2), (67, 1), (69, 0)):
        arrays = [array.copy() for array in case.arrays]
        arrays[2][frame, label] = bad
        products = Case("acceptor", case.graph, arrays).products(dtype)
        place = rf"(label {label}\b.*frame {frame}\b|frame {frame}\b.*label {label}\b)"
        with forced(kernel):
            with pytest.raises(ValueError, match=rf"^{name}: .*{place}.*{spelled}.*, but"):
                op(products[2])
            with pytest.raises(ValueError, match=rf"^{name} \(element 2 of 4\): .*{place}"):
                op(products)
            op([products[0], products[1], products[3]])


@every_kernel
@every_dtype
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_arc_is_named(kernel, dtype, bad):
    case = sample_case(kernel, count=3)
    values = weights(case.graph)
    values[5] = bad
    broken = Case("acceptor", with_weights(case.graph, values), case.arrays)
    with forced(kernel):
        with pytest.raises(ValueError, match=r"^forward_score: .*arc 5\b.*, but"):
            ag.forward_score(broken.products(dtype)[0])
        with pytest.raises(ValueError, match=r"^forward_score \(element 0 of 3\): .*arc 5\b"):
            ag.forward_score(broken.products(dtype))


def test_a_bad_emission_is_found_at_every_position():
    # Vectors, their remainders, and the first and last frames are checked by different code.
    for kernel in KERNELS:
        case = sample_case(kernel, count=1, length=5)
        for frame in range(len(case.arrays[0])):
            for label in range(case.arrays[0].shape[1]):
                array = case.arrays[0].copy()
                array[frame, label] = math.nan
                product = ag.intersect(with_dtype(case.graph, "float32"), dense(array, "float32"))
                with forced(kernel), pytest.raises(ValueError, match=rf"label {label}\b"):
                    ag.forward_score(product)


@every_kernel
def test_emissions_that_no_arc_reads_are_not_checked(kernel):
    case = sample_case(kernel, count=3)
    unread = math.nan
    arrays = [np.column_stack([x, np.full(len(x), unread)]) for x in case.arrays]
    with forced(kernel):
        found = fused(Case("acceptor", case.graph, arrays), "float64", second=False)
        expected = fused(case, "float64", second=False)
    assert found.scores == expected.scores
    for gradient, other in zip(found.emissions, expected.emissions, strict=True):
        columns = gradient.reshape(-1, arrays[0].shape[1])
        assert not np.any(columns[:, -1])
        assert np.array_equal(columns[:, :-1].ravel(), other)
