"""Scores of products with dense emissions: every kernel against the product built out in float64.

What a product is as a graph is tested in `test_products.py`.
"""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction, like
from hypothesis import given
from hypothesis import strategies as st
from tools import build, run_python, snapshot, weights, with_dtype, with_weights
from trellis_cases import (
    ANY_GRAPH,
    BOUNDS,
    CLASSES,
    KERNELS,
    Case,
    asg,
    assert_agrees,
    assert_near,
    assert_scores,
    back_off,
    bigram,
    cases,
    ctc,
    dense,
    differentiate,
    explicit,
    flower,
    forced,
    fused,
    log_total,
    random_array,
    reference,
    rivals,
    runs,
    same_bits,
)

import arcgrad as ag
from arcgrad import _core, tokens

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


# Fused equals unfused


@every_class
@given(data=st.data())
def test_the_reference_is_right(kind, data):
    case = data.draw(cases(kind))
    for score, array in zip(reference(case, second=False).scores, case.arrays, strict=True):
        expected = log_total(case.graph, case.side, array)
        assert score == pytest.approx(expected, rel=1e-11, abs=1e-11)


@every_dtype
@every_class
@given(data=st.data())
def test_every_kernel_equals_the_product_built_out(kind, dtype, data):
    case = data.draw(cases(kind)).narrowed(dtype)
    baseline = data.draw(st.booleans())
    expected = reference(case)
    for kernel in (None, *KERNELS):
        if not runs(kernel, case.products(dtype)):
            continue
        with forced(kernel, baseline=baseline):
            assert_agrees(fused(case, dtype), expected, dtype)


@every_class
@given(data=st.data())
def test_lists_of_different_graphs(kind, data):
    batch = [data.draw(cases(kind, sizes=(1,))) for _ in range(data.draw(st.integers(2, 5)))]
    graphs = [case.graph for case in batch]
    emissions = [dense(case.arrays[0]) for case in batch]
    products = [c.join(g, e) for c, g, e in zip(batch, graphs, emissions, strict=True)]
    scores = ag.forward_score(products)
    assert all("product" in repr(p) for p in products)
    gradients = ag.grad(scores, [*graphs, *emissions])
    for i, case in enumerate(batch):
        expected = reference(case, second=False)
        assert_scores([scores[i].item()], expected.scores, 1e-10)
        assert_near(weights(gradients[i]), expected.arcs, 1e-10, "gradient of the graph")
        found = weights(gradients[len(batch) + i])
        assert_near(found, expected.emissions[0], 1e-10, "gradient of the emissions")


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        *(("diagonal", kind) for kind in ("ctc", "weighted ctc", "asg")),
        *(("dense", kind) for kind in ("bigram", "bigram with ends")),
        *((kernel, kind) for kernel in ANY_GRAPH for kind in CLASSES),
    ],
)
def test_each_kernel_runs_its_graphs(kernel, kind):
    rng = generator(3)
    graphs = {
        "ctc": ctc([1, 2, 2, 3]),
        "weighted ctc": ctc([1, 1, 3], rng=rng),
        "asg": asg([1, 2, 2, 0], rng),
        "bigram": bigram(24, rng, missing=0.05),
        "bigram with ends": bigram(24, rng, ends=True),
        "flower": flower(5, rng),
        "back-off": back_off(5, 9, rng),
    }
    graph = graphs.get(kind, rivals())
    array = rng.normal(size=(9, int(graph.ilabels().max()) + 1))
    assert runs(kernel, ag.intersect(graph, dense(array)))


def test_a_kernel_that_cannot_run_a_graph_says_so():
    product = ag.intersect(back_off(6, 12, generator()), dense(np.zeros((4, 6))))
    for kernel in ("diagonal", "dense"):
        with forced(kernel), pytest.raises(ValueError, match=rf"forward_score: .*{kernel}"):
            ag.forward_score(product)
    with pytest.raises(ValueError, match="force_kernel"):
        _core.force_kernel("diagonals")


@every_class
@given(data=st.data())
def test_gradients_against_finite_differences(kind, data):
    case = data.draw(cases(kind, sizes=(1,)))

    def score(graph, emissions):
        return ag.forward_score(case.join(graph, emissions))

    if len(case.arrays[0]) > 5:
        case = Case(case.side, case.graph, [case.arrays[0][:5]])
    if case.graph.num_arcs() > 40:
        return
    assert_gradient(score, case.graph, dense(case.arrays[0]))
    assert_second_order(score, case.graph, dense(case.arrays[0]))


@given(st.lists(st.integers(1, 3), max_size=4), st.integers(0, 7), st.integers(0, 100))
def test_ctc_graphs_of_the_library(target, length, seed):
    array = generator(seed).normal(size=(length, 4))
    graph = tokens.ctc_graph(target)
    assert not graph.calc_grad
    score = ag.forward_score(ag.intersect(graph, dense(array)))
    assert_scores([score.item()], [log_total(ctc(target), "input", array)], 1e-10)
    assert score.item() == -ag.criterion.ctc_loss(dense(array), target, 0).item()


def test_a_list_of_targets_gives_a_list_of_ctc_graphs():
    targets = [[1, 2], [], [3, 3, 3]]
    graphs = tokens.ctc_graph(targets)
    for graph, target in zip(graphs, targets, strict=True):
        assert snapshot(graph) == snapshot(tokens.ctc_graph(target))
    blanks = tokens.ctc_graph([0, 1], blank=2)
    assert set(blanks.ilabels().tolist()) == {0, 1, 2}


@every_kernel
@every_dtype
def test_one_frame_and_one_label(kernel, dtype):
    for graph, frames in ((flower(1, generator()), 1), (ctc([]), 1), (flower(1, generator()), 0)):
        case = Case("acceptor", graph, [np.full((frames, 1), 0.5)])
        if runs(kernel, case.products(dtype)):
            with forced(kernel):
                assert_agrees(fused(case, dtype), reference(case), dtype)


@every_kernel
def test_mixed_dtypes(kernel):
    case = sample_case(kernel, count=3).narrowed("float32")
    expected = reference(case)
    for graph_dtype, dtype in (("float32", "float64"), ("float64", "float32")):
        graph = with_dtype(case.graph, graph_dtype)
        emissions = [dense(array, dtype) for array in case.arrays]
        with forced(kernel):
            found = differentiate(
                ag.forward_score(ag.intersect(graph, emissions)), graph, emissions
            )
            gradients = ag.grad(
                ag.forward_score(ag.intersect(graph, emissions)), [graph, *emissions]
            )
        assert_agrees(found, expected, "float32")
        assert [str(g.dtype) for g in gradients] == [graph_dtype, *[dtype] * len(emissions)]


@every_dtype
def test_a_batch_of_mixed_kinds(dtype):
    # Lists are planned as one batch whatever is in them: products of many kinds, plain graphs.
    rng = generator(8)
    batch = [
        sample_case("diagonal", count=2),
        sample_case("dense", count=3),
        sample_case("lanes", count=9),
    ]
    products = [p for case in batch for p in case.narrowed(dtype).products(dtype)]
    products.insert(4, explicit(rng.normal(size=(3, 2))))
    expected = [s for case in batch for s in reference(case.narrowed(dtype), second=False).scores]
    expected.insert(4, ag.forward_score(products[4]).item())
    order = rng.permutation(len(products))
    scores = ag.forward_score([products[i] for i in order])
    assert_scores([s.item() for s in scores], [expected[i] for i in order], BOUNDS[dtype][0])


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


@functools.lru_cache(maxsize=1)
def hard_case(graph, emissions, dtype):
    rng = generator(len(graph) + 100 * len(emissions))
    made, num_labels, length = GRAPHS[graph](rng)
    arrays = [HARD[emissions](rng, t, num_labels) for t in (length, length + 1, length)]
    case = Case("acceptor", made, arrays).narrowed(dtype)
    expected = reference(case)
    if emissions == "1e6":
        # Built out, sums of such weights and those of arcs lose too many digits. One number off
        # all weights of a frame changes no gradient.
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


def test_every_place_of_a_bad_emission_is_found():
    # Vectors, their remainders, and the first and last frames are looked at in different code.
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
def test_emissions_that_no_arc_reads_do_not_matter(kernel):
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


# The same bits


@every_kernel
@every_dtype
def test_the_number_of_threads_changes_no_bit(kernel, dtype, threads):
    case = sample_case(kernel, count=37)
    found = []
    for number in (1, 2, 5):
        threads(number)
        with forced(kernel):
            found.append(fused(case, dtype))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


@every_dtype
def test_the_number_of_threads_changes_no_bit_of_a_mixed_batch(dtype, threads):
    parts = [sample_case(kernel, count=9) for kernel in ("diagonal", "dense", "lanes")]
    found = []
    for number in (1, 2, 3):
        threads(number)
        inputs, products = [], []
        for case in parts:
            graph, emissions = case.leaves(dtype)
            inputs += [graph, *emissions]
            products += case.join(graph, emissions)
        scores = ag.forward_score(products)
        ag.backward(scores)
        found.append([snapshot(g) for g in (*scores, *(x.grad() for x in inputs))])
    assert found[0] == found[1] == found[2]


@every_kernel
@every_dtype
def test_an_example_does_not_depend_on_its_batch(kernel, dtype):
    case = sample_case(kernel, count=13)

    def results(order):
        part = Case(case.side, case.graph, [case.arrays[i] for i in order])
        with forced(kernel):
            found = fused(part, dtype)
        parts = zip(order, found.scores, found.emissions, found.emission_products, strict=True)
        return {i: (score, e.tobytes(), v.size) for i, score, e, v in parts}

    whole = results(range(13))
    assert {k: v for i in range(13) for k, v in results([i]).items()} == whole
    assert results(list(range(12, -1, -1))) == whole
    some = results([7, 1, 12])
    assert some == {i: whole[i] for i in some}


@every_kernel
def test_an_example_does_not_depend_on_impossible_or_extreme_neighbours(kernel):
    case = sample_case(kernel, count=9)
    arrays = [array.copy() for array in case.arrays]
    arrays[1][:] = -math.inf
    arrays[3] *= 1000
    arrays[5] = arrays[5][:1]
    arrays[6] = arrays[6][:0]
    with forced(kernel):
        try:
            found = fused(Case("acceptor", case.graph, arrays), "float32", second=False)
        except ValueError:
            assert kernel == "dense"
            return
        expected = fused(case, "float32", second=False)
    for i in (0, 2, 4, 7, 8):
        assert found.scores[i] == expected.scores[i]
        assert np.array_equal(found.emissions[i], expected.emissions[i])


@every_dtype
def test_the_same_call_gives_the_same_bits(dtype):
    for kernel in KERNELS:
        case = sample_case(kernel)
        assert same_bits(fused(case, dtype), fused(case, dtype))


@every_kernel
def test_the_shared_gradient_is_the_sum_over_the_batch(kernel):
    case = sample_case(kernel, count=21).narrowed("float32")
    with forced(kernel):
        together = fused(case, "float32", second=False)
        alone = [
            fused(Case("acceptor", case.graph, [array]), "float64", second=False).arcs
            for array in case.arrays
        ]
    total = np.sum(alone, axis=0)
    error = np.abs(together.arcs - total)
    assert np.max(error / np.maximum(1.0, np.abs(total))) <= 2e-6


# Checkpoints


@every_kernel
@every_dtype
def test_checkpoints_change_no_bit(kernel, dtype):
    case = sample_case(kernel, count=9, length=150)
    with forced(kernel, stride=1):
        expected = fused(case, dtype)
    for stride in (2, 3, 7, 64, 100, 1000):
        with forced(kernel, stride=stride):
            assert same_bits(fused(case, dtype), expected), f"every {stride} frames"


@pytest.fixture
def history_limit():
    before = ag.get_history_limit()
    yield ag.set_history_limit
    ag.set_history_limit(before)


@every_kernel
def test_the_history_limit_changes_no_bit(kernel, history_limit):
    case = sample_case(kernel, count=9, length=150)
    with forced(kernel):
        expected = fused(case, "float32")
        for limit in (10_000, 1000, 1, 0):
            history_limit(limit)
            assert ag.get_history_limit() == limit
            assert same_bits(fused(case, "float32"), expected)
    paths = [snapshot(p) for p in ag.viterbi_path(case.products())]
    history_limit(1 << 30)
    assert [snapshot(p) for p in ag.viterbi_path(case.products())] == paths


def test_a_negative_history_limit_is_refused():
    with pytest.raises((ValueError, TypeError)):
        ag.set_history_limit(-1)


MEMORY = """
import math
import resource
import numpy as np
import arcgrad as ag
from arcgrad import _core, tokens
ag.set_num_threads(1)
kernel, count = {kernel!r}, {count}
if kernel == "dense":
    size, labels, length = 48, 48, 200_000
    nodes = np.arange(size, dtype=np.int32)
    src = np.concatenate([np.full(size, size), np.repeat(nodes, size)])
    dst = np.concatenate([nodes, np.tile(nodes, size)])
    graph = ag.Graph.from_arrays(src, dst, dst, start=[size], accept=nodes, calc_grad=False)
else:
    size, labels, length = 1001, 3, 40_000 if kernel == "diagonal" else 10_000
    graph = tokens.ctc_graph([1, 2] * 250)
def run(length):
    emissions = [ag.linear_graph(length, labels, array[:length], copy=False) for _ in range(count)]
    scores = ag.forward_score(ag.intersect(graph, emissions))
    ag.backward(scores)
    return sum(score.item() for score in scores)
array = np.random.default_rng(0).normal(size=(length, labels)).astype(np.float32)
_core.force_kernel(kernel)
ag.set_history_limit(1 << 40)
run(100)
ag.set_history_limit(1 << 16)
run(100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = run(length)
peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
assert math.isfinite(total)
bound = count * 4 * math.sqrt(length) * (size + 1) * 8
gradient = count * array.nbytes
print(int(peak - gradient), int(bound), int(8 * length * (size + 1) * count))
"""


@pytest.mark.parametrize(
    ("kernel", "count"), [("diagonal", 1), ("csr", 1), ("lanes", 8), ("dense", 1)]
)
def test_checkpoints_bound_the_memory(kernel, count):
    peak, bound, whole = map(int, run_python(MEMORY.format(kernel=kernel, count=count)).split())
    assert whole > 20 * bound
    # A little is left for what the process itself needs, and for emissions turned into pairs.
    assert peak <= bound + 4_000_000


# Borrowed emissions


STRIDED = [
    pytest.param(lambda a: np.asfortranarray(a), id="fortran order"),
    pytest.param(lambda a: np.repeat(a, 2, 0)[::2], id="every second row"),
    pytest.param(lambda a: np.repeat(a, 3, 1)[:, ::3], id="every third column"),
    pytest.param(lambda a: a[::-1, ::-1].copy()[::-1, ::-1], id="negative strides"),
    pytest.param(lambda a: np.stack([a, a], 1)[:, 0], id="slice of a batch"),
    pytest.param(lambda a: np.broadcast_to(a[:1], a.shape), id="one frame repeated"),
]


@pytest.mark.parametrize("arrange", STRIDED)
@every_kernel
@every_dtype
def test_borrowed_emissions_of_any_strides(arrange, kernel, dtype):
    case = sample_case(kernel, count=3)
    graph = with_dtype(case.graph, dtype)
    arrays = [arrange(array.astype(dtype)) for array in case.arrays]
    results = []
    for borrow in (True, False):
        emissions = [
            ag.linear_graph(*a.shape, a, copy=False) if borrow else dense(a, dtype) for a in arrays
        ]
        with forced(kernel):
            products = ag.intersect(graph, emissions)
            results.append(differentiate(ag.forward_score(products), graph, emissions))
            results[-1].scores.extend(s.item() for s in ag.viterbi_score(products))
            results[-1].scores.extend(sum(weights(p)) for p in ag.viterbi_path(products))
    assert same_bits(*results)


def test_ragged_lengths_of_one_array():
    # Padding may hold anything: frames past the length are never read.
    rng = generator()
    batch = rng.normal(size=(5, 12, 4))
    lengths = [12, 3, 0, 7, 1]
    graph = flower(4, rng)
    for i, length in enumerate(lengths):
        batch[i, length:] = math.nan
    emissions = [ag.linear_graph(t, 4, batch[i, :t], copy=False) for i, t in enumerate(lengths)]
    scores = ag.forward_score(ag.intersect(graph, emissions))
    clean = [log_total(graph, "input", batch[i, :t]) for i, t in enumerate(lengths)]
    assert_scores([s.item() for s in scores], clean, 1e-10)


# Viterbi


def explicit_path(case, array, dtype):
    graph = with_dtype(case.graph, dtype)
    emissions = with_dtype(explicit(array), dtype)
    return case.join(graph, emissions)


@every_dtype
@every_class
@given(data=st.data())
def test_the_best_path_is_exactly_that_of_the_product_built_out(kind, dtype, data):
    case = data.draw(cases(kind, exact=True))
    if data.draw(st.booleans()):
        # Everything ties.
        zeros = with_weights(case.graph, np.zeros(case.graph.num_arcs()))
        case = Case(case.side, zeros, [np.zeros_like(array) for array in case.arrays])
    built = [explicit_path(case, array, dtype) for array in case.arrays]
    expected = [snapshot(path) for path in ag.viterbi_path(built)]
    scores = [score.item() for score in ag.viterbi_score(built)]
    for baseline in (False, True):
        with forced(baseline=baseline):
            products = case.products(dtype)
            assert [snapshot(path) for path in ag.viterbi_path(products)] == expected
            assert [score.item() for score in ag.viterbi_score(products)] == scores


@every_class
@given(data=st.data())
def test_gradients_of_best_paths(kind, data):
    case = data.draw(cases(kind, exact=True))
    graph, emissions = case.leaves("float64")
    other, built = with_dtype(case.graph, "float64"), [explicit(x) for x in case.arrays]
    for op in (ag.viterbi_score, ag.viterbi_path):
        found = ag.grad(op(case.join(graph, emissions)), [graph, *emissions])
        expected = ag.grad(op(case.join(other, built)), [other, *built])
        assert [weights(g).tolist() for g in found] == [weights(g).tolist() for g in expected]


def test_best_scores_have_no_curvature():
    graph, emissions = back_off(3, 4, generator()), dense(generator(1).normal(size=(4, 3)))

    def best(g, e):
        return ag.viterbi_score(ag.intersect(g, e))

    def mixed(g, e):
        product = ag.intersect(g, e)
        return ag.subtract(ag.forward_score(product), ag.viterbi_score(product))

    for score in (best, mixed):
        assert_gradient(score, graph, emissions)
        assert_second_order(score, graph, emissions)


def test_the_best_path_keeps_output_labels():
    lexicon = build(2, {0}, {1}, [(0, 0, 0, 7, 0.0), (0, 1, 1, ag.epsilon, 0.5), (1, 1, 1, 9, 0.0)])
    emissions = dense(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]]))
    path = ag.viterbi_path(ag.compose(emissions, lexicon))
    assert path.labels_to_list() == [0, 1, 1]
    assert path.labels_to_list(ilabel=False) == [7, ag.epsilon, 9]
    assert path.weights_to_list() == [1.0, 2.5, 1.0]
    path = ag.viterbi_path(ag.compose(ag.invert(lexicon), emissions))
    assert path.labels_to_list() == [7, ag.epsilon, 9]
    assert path.labels_to_list(ilabel=False) == [0, 1, 1]


def test_the_best_path_shows_epsilon_arcs():
    graph = back_off(3, 2, generator(1))
    array = generator(2).normal(size=(6, 3))
    expected = ag.viterbi_path(ag.intersect(graph, explicit(array)))
    found = ag.viterbi_path(ag.intersect(graph, dense(array)))
    assert snapshot(found) == snapshot(expected)
    assert ag.epsilon in found.labels_to_list()


def test_best_paths_of_long_random_emissions():
    for kernel in ("diagonal", "dense", "lanes"):
        case = sample_case(kernel, count=3, length=300)
        built = [explicit_path(case, array, "float64") for array in case.arrays]
        products = case.products()
        expected = [path.labels_to_list() for path in ag.viterbi_path(built)]
        assert [path.labels_to_list() for path in ag.viterbi_path(products)] == expected
        scores = [s.item() for s in ag.viterbi_score(built)]
        assert [s.item() for s in ag.viterbi_score(products)] == pytest.approx(scores, rel=1e-12)


NEARLY_TIED = {
    "few values": lambda rng, t, c: rng.integers(0, 2, (t, c)).astype(float),
    "1e-7 apart": lambda rng, t, c: 1.0 + 1e-7 * rng.integers(0, 3, (t, c)),
    "one label forbidden": lambda rng, t, c: rng.normal(size=(t, c)) - 1e9 * (np.arange(c) == 1),
    "1e30": lambda rng, t, c: rng.choice([-1e30, 0.0, 1e30], (t, c)),
}


@pytest.mark.parametrize("graph", ["bigram", "bigram with ends", "back-off", "rivals"])
@pytest.mark.parametrize("emissions", [*HARD, *NEARLY_TIED])
@every_dtype
def test_best_paths_of_hard_batches_are_those_of_the_products_built_out(graph, emissions, dtype):
    rng = generator(1)
    made, num_labels, length = GRAPHS[graph](rng)
    make = (HARD | NEARLY_TIED)[emissions]
    arrays = [make(rng, t, num_labels) for t in (0, 1, length, 5, length + 3, length)]
    if emissions in NEARLY_TIED:
        made = with_weights(made, np.round(weights(made)))
    case = Case("acceptor", made, arrays)
    built = [explicit_path(case, array, dtype) for array in arrays]
    expected = [snapshot(path) for path in ag.viterbi_path(built)]
    for baseline in (False, True):
        with forced(baseline=baseline):
            products = case.products(dtype)
            assert [snapshot(path) for path in ag.viterbi_path(products)] == expected
            assert [snapshot(ag.viterbi_path(product)) for product in products] == expected


@pytest.mark.parametrize(("kernel", "length"), [("dense", 13_000), ("lanes", 110_000)])
def test_best_paths_of_batches_too_long_to_keep_all_scores(kernel, length):
    graph, rng = sample_case(kernel).graph, generator(3)
    num_labels = int(graph.ilabels().max()) + 1
    count = 16 if kernel == "dense" else 8
    emissions = [dense(rng.normal(size=(length - i, num_labels))) for i in range(count)]
    products = ag.intersect(graph, emissions)
    together = ag.viterbi_path(products)
    for i in (0, count - 1):
        alone = ag.viterbi_path(products[i])
        assert same_bits_of_paths(alone, together[i])


def same_bits_of_paths(first, second):
    return np.array_equal(first.ilabels(), second.ilabels()) and np.array_equal(
        weights(first), weights(second)
    )


# Posteriors


@every_class
@given(data=st.data())
def test_arc_posteriors_of_a_factor(kind, data):
    case = data.draw(cases(kind, sizes=(1,)))
    expected = reference(case, second=False)
    graph, (emissions,) = case.leaves("float64")
    product = case.join(graph, emissions)
    to_graph = ag.arc_posteriors(product, wrt=graph)
    to_emissions = ag.arc_posteriors(product, wrt=emissions)
    assert snapshot(to_graph)[:7] == snapshot(graph)[:7]
    assert snapshot(to_emissions)[:7] == snapshot(emissions)[:7]
    assert_near(weights(to_graph), expected.arcs, 1e-10, "posteriors of the graph")
    assert_near(weights(to_emissions), expected.emissions[0], 1e-10, "posteriors of the emissions")


def test_arc_posteriors_of_lists_and_of_factors_without_gradient():
    case = sample_case("lanes", count=3)
    graph, emissions = case.leaves("float64")
    graph.calc_grad = False
    products = case.join(graph, emissions)
    each = [ag.arc_posteriors(p, wrt=e) for p, e in zip(products, emissions, strict=True)]
    together = ag.arc_posteriors(products, wrt=emissions)
    assert [snapshot(g) for g in together] == [snapshot(g) for g in each]
    shared = ag.arc_posteriors(products, wrt=graph)
    assert [snapshot(g) for g in shared] == [
        snapshot(ag.arc_posteriors(p, wrt=graph)) for p in products
    ]
    assert sum(weights(g).sum() for g in together) == pytest.approx(sum(map(len, case.arrays)))


def test_arc_posteriors_are_differentiable():
    case = sample_case("lanes", count=1, length=6)
    graph, (emissions,) = case.leaves("float64")
    for factor in (graph, emissions):
        posteriors = ag.arc_posteriors(ag.intersect(graph, emissions), wrt=factor)
        vector = direction(factor, 1)
        found = ag.grad(posteriors, [graph, emissions], like(posteriors, vector))
        vectors = [vector if g is factor else np.zeros(g.num_arcs()) for g in (graph, emissions)]
        score = ag.forward_score(ag.intersect(graph, emissions))
        expected = ag.hvp(score, [graph, emissions], vectors)
        for one, other in zip(found, expected, strict=True):
            assert weights(one) == pytest.approx(weights(other), abs=1e-10)


@every_class
@given(data=st.data())
def test_counts_of_a_factor_on_the_best_path(kind, data):
    case = data.draw(cases(kind, exact=True, sizes=(1,)))
    graph, (emissions,) = case.leaves("float64")
    product = case.join(graph, emissions)
    expected = ag.grad(ag.viterbi_score(product), [graph, emissions])
    for factor, gradient in zip((graph, emissions), expected, strict=True):
        counts = ag.arc_posteriors(product, wrt=factor, semiring="tropical")
        assert snapshot(counts)[:7] == snapshot(factor)[:7]
        assert weights(counts).tolist() == weights(gradient).tolist()


def test_posteriors_are_of_a_factor_or_of_an_ordinary_graph():
    graph, emissions = flower(2, generator()), dense(np.zeros((3, 2)))
    product = ag.intersect(graph, emissions)
    with pytest.raises(ValueError, match=r"arc_posteriors: wrt must be one of the two graphs"):
        ag.arc_posteriors(product, wrt=flower(2, generator()))
    with pytest.raises(ValueError, match=r"arc_posteriors: .*"):
        ag.arc_posteriors(explicit(np.zeros((3, 2))), wrt=graph)
    assert ag.arc_posteriors(product).num_arcs() == 6


# Tape


@every_kernel
def test_backward_of_a_list_stores_what_grad_returns(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        graph, emissions = case.leaves("float32")
        scores = ag.forward_score(case.join(graph, emissions))
        expected = ag.grad(scores, [graph, *emissions])
        ag.backward(scores)
    for leaf, gradient in zip([graph, *emissions], expected, strict=True):
        assert snapshot(leaf.grad()) == snapshot(gradient)


@every_kernel
def test_a_loop_of_scores_equals_a_list(kernel):
    case = sample_case(kernel, count=5)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        together = fused(case, "float64", second=False)
        scores = [ag.forward_score(case.join(graph, e)) for e in emissions]
        for score in scores:
            ag.backward(score)
        assert [s.item() for s in scores] == together.scores
        for leaf, gradient in zip(emissions, together.emissions, strict=True):
            assert weights(leaf.grad()).tolist() == gradient.tolist()
        assert weights(graph.grad()) == pytest.approx(together.arcs, rel=1e-12, abs=1e-12)
        graph.zero_grad()
        ag.backward([ag.forward_score(case.join(graph, e)) for e in emissions])
        assert weights(graph.grad()) == pytest.approx(together.arcs, rel=1e-12, abs=1e-12)


@every_kernel
def test_part_of_a_batch_and_seeds(kernel):
    case = sample_case(kernel, count=10)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        scores = ag.forward_score(case.join(graph, emissions))
        each = [ag.grad(score, [graph, *emissions]) for score in scores]
        seeds = [0.5, 0.0, -2.0]
        chosen = [7, 2, 9]
        found = ag.grad(
            [scores[i] for i in chosen],
            [graph, *emissions],
            [ag.scalar_graph(seed) for seed in seeds],
        )
    for k, gradient in enumerate(found):
        expected = sum(s * weights(each[i][k]) for s, i in zip(seeds, chosen, strict=True))
        assert weights(gradient) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for i, gradients in enumerate(each):
        others = [weights(g) for k, g in enumerate(gradients[1:]) if k != i]
        assert not any(np.any(g) for g in others)


@every_kernel
def test_retaining_the_tape_gives_exactly_twice(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        graph, emissions = case.leaves("float32")
        scores = ag.forward_score(case.join(graph, emissions))
        ag.backward(scores, retain_graph=True)
        once = [weights(g.grad()) for g in (graph, *emissions)]
        ag.backward(scores, retain_graph=True)
        assert [weights(g.grad()).tolist() for g in (graph, *emissions)] == [
            (2 * gradient).tolist() for gradient in once
        ]
        ag.backward(scores)
        with pytest.raises(RuntimeError, match="freed"):
            ag.backward(scores)


@every_kernel
def test_gradients_reach_only_what_asks_for_them(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        both = fused(case, "float32")
        graph, emissions = case.leaves("float32")
        graph.calc_grad = False
        ag.backward(ag.forward_score(case.join(graph, emissions)))
        assert not graph.is_grad_available()
        for leaf, expected in zip(emissions, both.emissions, strict=True):
            assert np.array_equal(weights(leaf.grad()), expected)
        graph, emissions = case.leaves("float32")
        for leaf in emissions[1:]:
            leaf.calc_grad = False
        ag.backward(ag.forward_score(case.join(graph, emissions)))
        assert np.array_equal(weights(graph.grad()), both.arcs)
        assert np.array_equal(weights(emissions[0].grad()), both.emissions[0])
        assert not any(leaf.is_grad_available() for leaf in emissions[1:])
        for leaf in (graph, *emissions):
            leaf.calc_grad = False
        scores = ag.forward_score(case.join(graph, emissions))
        assert not any(score.calc_grad for score in scores)
        assert [score.item() for score in scores] == both.scores


@every_kernel
def test_second_order_to_one_factor(kernel):
    case = sample_case(kernel, count=3, length=12)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        expected = reference(case)
        scores = ag.forward_score(case.join(graph, emissions))
        inputs = [graph, *emissions]
        vectors = [direction(g, phase) for phase, g in enumerate(inputs)]
        # By blocks: Hvv of one factor alone, and the rest from the mixed terms.
        blocks = []
        for i in range(len(inputs)):
            only = [v if k == i else np.zeros_like(v) for k, v in enumerate(vectors)]
            blocks.append([weights(g) for g in ag.hvp(scores, inputs, only)])
        total = [np.sum([block[k] for block in blocks], axis=0) for k in range(len(inputs))]
        assert_near(total[0], expected.arc_products, 1e-8, "hvp of the graph")
        for i, product in enumerate(expected.emission_products):
            assert_near(total[i + 1], product, 1e-8, f"hvp of emissions {i}")
        alone = ag.hvp(scores, graph, vectors[0])
        assert_near(weights(alone), blocks[0][0], 1e-10, "hvp of the graph alone")
        graph.calc_grad = False
        part = ag.hvp(ag.forward_score(case.join(graph, emissions)), emissions, vectors[1:])
        for k, product in enumerate(part):
            rest = np.sum([block[k + 1] for block in blocks[1:]], axis=0)
            assert_near(weights(product), rest, 1e-8, "hvp of the emissions alone")


@every_kernel
def test_a_gradient_with_create_graph_is_the_gradient(kernel):
    case = sample_case(kernel, count=9)
    for dtype in BOUNDS:
        with forced(kernel):
            graph, emissions = case.leaves(dtype)
            scores = ag.forward_score(case.join(graph, emissions))
            plain = ag.grad(scores, [graph, *emissions])
            recorded = ag.grad(scores, [graph, *emissions], create_graph=True)
        for one, other in zip(recorded, plain, strict=True):
            assert one.calc_grad
            assert_near(weights(one), weights(other), BOUNDS[dtype][1], "gradient")


@every_kernel
def test_the_gradient_is_differentiable_in_its_seed(kernel):
    case = sample_case(kernel, count=2)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        scores = ag.forward_score(case.join(graph, emissions))
        seeds = [ag.scalar_graph(2.0), ag.scalar_graph(-1.0)]
        gradients = ag.grad(scores, [graph, *emissions], seeds, create_graph=True)
        found = ag.grad(gradients, seeds)
        for i, seed in enumerate(found):
            each = ag.grad(scores[i], [graph, *emissions])
            assert seed.item() == pytest.approx(sum(weights(g).sum() for g in each), rel=1e-10)


def test_third_order_raises():
    graph, emissions = flower(2, generator()), dense(np.zeros((3, 2)))
    score = ag.forward_score(ag.intersect(graph, emissions))
    first = ag.grad(score, [graph, emissions], create_graph=True)
    with pytest.raises(RuntimeError, match="order"):
        ag.grad(first, [graph, emissions], create_graph=True)


def test_second_order_of_a_loss():
    rng = generator(3)
    array = rng.normal(size=(5, 3))

    def loss(transitions, emissions):
        target = ag.intersect(ctc([1, 2]), transitions)
        numerator = ag.forward_score(ag.intersect(target, emissions))
        return ag.subtract(ag.forward_score(ag.intersect(transitions, emissions)), numerator)

    assert_gradient(loss, bigram(3, rng), dense(array))
    assert_second_order(loss, bigram(3, rng), dense(array))


def test_one_emission_graph_in_many_products():
    rng = generator(6)
    emissions = dense(rng.normal(size=(8, 4)))
    graphs = [ctc([1, 2]), bigram(4, rng), flower(4, rng), ctc([3])]
    scores = ag.forward_score(ag.intersect(graphs, emissions))
    ag.backward(scores)
    expected = sum(
        weights(ag.grad(ag.forward_score(ag.intersect(g, emissions)), emissions)) for g in graphs
    )
    assert weights(emissions.grad()) == pytest.approx(expected, rel=1e-12)


def test_no_grad_keeps_nothing():
    case = sample_case("lanes")
    with ag.no_grad():
        products = case.products("float32")
        scores = ag.forward_score(products)
    assert not any(p.calc_grad for p in products)
    assert not any(s.calc_grad for s in scores)
    assert [s.item() for s in scores] == fused(case, "float32", second=False).scores
    with pytest.raises(RuntimeError, match=r"backward: .*no_grad"):
        ag.backward(scores)


# The outer form


def outer_inputs(dtype="float64"):
    rng = generator(9)
    graphs = [ctc([1, 2], rng=rng), ctc([3], rng=rng), flower(4, rng), asg([1, 1, 2], rng)]
    graphs = [with_dtype(g, dtype) for g in [*graphs, back_off(4, 5, rng)]]
    emissions = [dense(rng.normal(size=(t, 4)), dtype) for t in (6, 3, 9, 2)]
    return graphs, emissions


def windows(array, window, stride):
    return [array[t : t + window] for t in range(0, len(array) - window + 1, stride)]


@every_dtype
@pytest.mark.parametrize(("window", "stride"), [(None, 1), (3, 1), (3, 2), (2, 3), (1, 1), (9, 1)])
def test_outer_scores_are_those_of_a_loop(window, stride, dtype):
    graphs, emissions = outer_inputs(dtype)
    table = ag.outer_score(graphs, emissions, window=window, stride=stride)
    scores = np.asarray(table.weights_view())
    arrays = [np.asarray(e.weights_view(), np.float64) for e in emissions]
    rows = arrays if window is None else [w for x in arrays for w in windows(x, window, stride)]
    assert scores.shape == (len(rows), len(graphs))
    expected = [[log_total(g, "input", x) for g in graphs] for x in rows]
    for row, truth in zip(scores, expected, strict=True):
        assert_scores(row, truth, BOUNDS[dtype][0])


@every_dtype
@pytest.mark.parametrize(("window", "stride"), [(None, 1), (3, 1), (3, 2), (2, 3), (9, 1)])
def test_gradients_of_outer_scores(window, stride, dtype):
    graphs, emissions = outer_inputs(dtype)
    table = ag.outer_score(graphs, emissions, window=window, stride=stride)
    finite = np.isfinite(weights(table))
    seed = np.where(finite, direction(table, 3), 0.0)
    inputs = [*graphs, *emissions]
    found = [weights(g) for g in ag.grad(table, inputs, like(table, seed))]
    # The reference: every pair is a product of its own.
    expected = [np.zeros(g.num_arcs()) for g in inputs]
    seed = iter(seed)
    for b, e in enumerate(emissions):
        array = np.asarray(e.weights_view(), np.float64)
        length = len(array) if window is None else window
        for t in range(0, len(array) - length + 1, stride):
            for k, graph in enumerate(graphs):
                part = explicit(array[t : t + length])
                wide = with_dtype(graph, "float64")
                gradients = ag.grad(ag.forward_score(ag.intersect(wide, part)), [wide, part])
                delta = next(seed)
                expected[k] += delta * weights(gradients[0])
                to = expected[len(graphs) + b].reshape(-1, 4)[t : t + length]
                to += delta * weights(gradients[1]).reshape(-1, 4)
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, BOUNDS[dtype][1], "gradient of an outer score")


@pytest.mark.parametrize(("window", "stride"), [(None, 1), (2, 1)])
def test_outer_scores_against_finite_differences(window, stride):
    rng = generator(10)
    graphs = [ctc([1], rng=rng), flower(2, rng)]
    emissions = [dense(rng.normal(size=(t, 2))) for t in (3, 2)]

    def score(*inputs):
        return ag.outer_score(list(inputs[:2]), list(inputs[2:]), window=window, stride=stride)

    assert_gradient(score, *graphs, *emissions)
    assert_second_order(score, *graphs, *emissions)


def test_hessians_of_outer_scores():
    graphs, emissions = outer_inputs()
    inputs = [*graphs, *emissions]
    vectors = [direction(g, phase) for phase, g in enumerate(inputs)]
    total = ag.forward_score(ag.outer_score(graphs, emissions, window=2, stride=2))
    found = [weights(g) for g in ag.hvp(total, inputs, vectors)]
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
    # It is emissions again: a layer of kernels is the input of the next one.
    again = ag.forward_score(ag.intersect(flower(columns, generator()), table))
    assert ag.grad(again, graphs[0]).num_arcs() == graphs[0].num_arcs()


def test_outer_scores_with_single_graphs_and_nothing():
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


@pytest.mark.parametrize("options", [{"window": 0}, {"window": -1}, {"window": 2, "stride": 0}])
def test_windows_and_strides_are_positive(options):
    graphs, emissions = outer_inputs()
    with pytest.raises(ValueError, match=r"outer_score: .*(window|stride).*, but"):
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
def test_the_threads_change_no_bit_of_an_outer_score(dtype, threads):
    found = []
    for number in (1, 2, 5):
        threads(number)
        graphs, emissions = outer_inputs(dtype)
        table = ag.outer_score(graphs, emissions, window=2)
        ag.backward(table, like(table, np.where(np.isfinite(weights(table)), 1.0, 0.0)))
        found.append([snapshot(table), *(snapshot(g.grad()) for g in (*graphs, *emissions))])
    assert found[0] == found[1] == found[2]


# The choice of a kernel


def test_explain_names_the_kernel_and_why():
    choices = {
        "diagonal": sample_case("diagonal", count=1),
        "dense": sample_case("dense", count=1),
        "csr": sample_case("lanes", count=1),
    }
    for kernel, case in choices.items():
        (product,) = case.products("float32")
        found = ag.explain(product)
        assert found.kernel == kernel
        assert isinstance(found.reason, str)
        assert len(found.reason.split()) > 3
        assert kernel in repr(found)
        with forced(kernel):
            assert np.array_equal(
                ag.forward_score(product).item(),
                ag.forward_score(case.products("float32"))[0].item(),
            )


def test_a_batch_that_shares_its_graph_runs_in_lanes():
    case = sample_case("lanes", count=9)
    found = ag.explain(case.products("float32"))
    assert [choice.kernel for choice in found] == ["lanes"] * 9


def test_ordinary_graphs_are_materialised():
    assert ag.explain(flower(2, generator())).kernel == "materialised"


def test_the_kernel_chosen_is_the_one_that_runs():
    for kind in KERNELS:
        case = sample_case(kind, count=9)
        products = case.products("float32")
        chosen = {choice.kernel for choice in ag.explain(products)}
        assert len(chosen) == 1
        found = fused(case, "float32", second=False)
        with forced(chosen.pop()):
            assert same_bits(fused(case, "float32", second=False), found)


# Epsilon cycles


def epsilon_cycle(weight):
    eps = ag.epsilon
    arcs = [(0, 1, eps, eps, weight), (1, 0, eps, eps, weight), (0, 1, 0, 0, 0.5)]
    return build(2, {0}, {1}, [*arcs, (1, 1, 1, 1, -0.5)])


def test_a_convergent_epsilon_cycle_is_materialised():
    graph, array = epsilon_cycle(-1.0), generator(7).normal(size=(4, 2))
    emissions, other, built = dense(array), epsilon_cycle(-1.0), explicit(array)
    product = ag.intersect(graph, emissions)
    assert ag.explain(product).kernel == "materialised"
    assert "epsilon" in ag.explain(product).reason
    score, expected = ag.forward_score(product), ag.forward_score(ag.intersect(other, built))
    assert score.item() == pytest.approx(expected.item(), rel=1e-12)
    vectors = [direction(graph, 0), direction(emissions, 1)]
    for found, truth in (
        (ag.grad(score, [graph, emissions]), ag.grad(expected, [other, built])),
        (ag.hvp(score, [graph, emissions], vectors), ag.hvp(expected, [other, built], vectors)),
    ):
        for one, two in zip(found, truth, strict=True):
            assert weights(one) == pytest.approx(weights(two), abs=1e-10)
    batch = ag.forward_score([product, ag.intersect(flower(2, generator()), emissions)])
    assert batch[0].item() == score.item()


def test_a_divergent_epsilon_cycle_raises_as_for_any_graph():
    product = ag.intersect(epsilon_cycle(0.5), dense(np.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"forward_score: .*cycle|forward_score: .*component"):
        ag.forward_score(product)
    with pytest.raises(ValueError, match=r"viterbi_score: .*cycle|viterbi_score: .*component"):
        ag.viterbi_score(product)


def test_no_kernel_can_be_forced_on_an_epsilon_cycle():
    product = ag.intersect(epsilon_cycle(-1.0), dense(np.zeros((2, 2))))
    for kernel in KERNELS:
        with forced(kernel), pytest.raises(ValueError, match=kernel):
            ag.forward_score(product)


def test_an_outer_score_refuses_an_epsilon_cycle():
    emissions = dense(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"outer_score.*epsilon.*cycle"):
        ag.outer_score([flower(2, generator()), epsilon_cycle(-1.0)], [emissions])


# Interrupts


INTERRUPT = """
import math
import os
import signal
import threading
import time
import numpy as np
import arcgrad as ag
ag.set_num_threads(2)
rng = np.random.default_rng(0)
nodes = rng.integers(0, 2000, (2, 20_000)).astype(np.int32)
nodes[:, :2000] = [np.arange(2000), np.roll(np.arange(2000), 1)]
label = nodes[1] % 50
graph = ag.Graph.from_arrays(nodes[0], nodes[1], label, start=[0], accept=np.arange(2000))
def products(count, length):
    array = rng.normal(size=(length, 50)).astype(np.float32)
    return ag.intersect(graph, [ag.linear_graph(length, 50, array) for _ in range(count)])
{work}
# The state is as before: the same values again.
small = ag.intersect(graph, ag.linear_graph(20, 50, np.zeros((20, 50), np.float32)))
expected = ag.forward_score(ag.clone(small)).item()
assert math.isclose(ag.forward_score(small).item(), expected, rel_tol=1e-6)
graph.zero_grad()
scores = ag.forward_score([small] * 9)
ag.backward(scores)
assert all(math.isclose(s.item(), expected, rel_tol=1e-6) for s in scores)
assert math.isclose(graph.grad().weights_to_numpy().sum(), 9 * 20, rel_tol=1e-4)
print("done")
"""
TIMED = """
def interrupted(call):
    sent = []
    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.3, send)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    timer.cancel()
    raise AssertionError("the batch ended before it was interrupted")
"""


def test_a_long_batch_can_be_interrupted():
    work = (
        TIMED
        + """
long = products(256, 3000)
for op in (ag.forward_score, ag.viterbi_path):
    seconds = interrupted(lambda: op(long))
    assert seconds < 1.0, seconds
"""
    )
    assert run_python(INTERRUPT.format(work=work)).strip() == "done"


def test_a_long_backward_can_be_interrupted():
    work = (
        TIMED
        + """
count, seconds = 8, 0.0
while seconds < 0.8:
    count *= 2
    batch = products(count, 400)
    ag.forward_score(batch)  # the first touch of fresh memory may take longer than the work
    begin = time.perf_counter()
    scores = ag.forward_score(batch)
    seconds = time.perf_counter() - begin
seconds = interrupted(lambda: ag.backward(scores))
assert seconds < 1.0, seconds
assert not graph.is_grad_available()
"""
    )
    assert run_python(INTERRUPT.format(work=work)).strip() == "done"


# Faults that were found once


def loop(label):
    return ag.Graph.from_arrays([0], [0], [label], start=[0], accept=[0])


def test_a_place_that_is_dead_and_cannot_end_does_not_spoil_the_score():
    graph = ag.Graph.from_arrays(
        [0, 0, 2], [1, 2, 1], [0, 1, 0], weight=np.zeros(3, np.float32), start=[0], accept=[1]
    )
    for weight in (88.0, 89.0, 266.5, -89.0, 1e5):
        emissions = ag.linear_graph(1, 2, np.array([[weight, -np.inf]], np.float32))
        scores = ag.forward_score([ag.intersect(graph, emissions)] * 2)
        assert [score.item() for score in scores] == pytest.approx([weight] * 2, rel=1e-6)
        assert weights(ag.grad(scores, emissions)).tolist() == [2.0, 0.0]
        outer = ag.outer_score([graph], [emissions], window=1)
        assert outer.weights_to_list() == pytest.approx([weight], rel=1e-6)


@pytest.mark.parametrize("window", [None, 8, 40])
def test_gradients_of_all_graphs_and_windows_add_up_in_large_emissions(window):
    emissions = ag.linear_graph(100, 64)
    scores = ag.outer_score([loop(1), loop(2), loop(3)], [emissions], window=window, stride=10)
    frames = window or 100
    assert weights(ag.grad(scores, emissions)).sum() == pytest.approx(scores.num_arcs() * frames)


def test_lanes_of_different_widths_in_double():
    rng = np.random.default_rng(0)
    arcs = [(i, j, (3 * i + j) % 7) for i in range(3) for j in range(3)]
    src, dst, label = zip(*arcs, strict=True)
    graph = ag.Graph.from_arrays(
        src, dst, label, weight=rng.normal(size=9), start=[0], accept=[0, 1, 2]
    )
    products = [
        ag.intersect(graph, ag.linear_graph(6, c, rng.normal(size=(6, c)).astype(np.float32)))
        for c in (100, 50, 7, 20, 9, 30, 8, 11, 12)
    ]
    expected = [ag.forward_score(ag.clone(product)).item() for product in products]
    assert [s.item() for s in ag.forward_score(products)] == pytest.approx(expected, rel=1e-12)


def test_a_retained_product_is_counted_once():
    emissions = ag.linear_graph(4, 5, np.arange(20.0), dtype="float64")
    first, second = (ag.intersect(loop(label), emissions) for label in (1, 2))
    first.retain_grad()
    ag.backward([ag.viterbi_score(first), ag.viterbi_score(second)])
    assert weights(emissions.grad()).sum() == 8.0
    assert weights(first.grad()).sum() == 4.0


@pytest.mark.parametrize("use", [lambda p: ag.intersect(p, loop(1)), ag.viterbi_path])
def test_a_product_that_was_left_out_has_no_partial_gradient(use):
    product = ag.intersect(loop(1), ag.linear_graph(4, 5))
    scores = [ag.forward_score(product), ag.forward_score(use(product))]
    with pytest.raises(RuntimeError, match="computed without it"):
        ag.grad(scores, product)
    with pytest.raises(RuntimeError, match="computed without it"):
        product.retain_grad()
    fresh = ag.intersect(loop(1), ag.linear_graph(4, 5))
    with ag.no_grad():
        use(fresh)
    assert weights(ag.grad(ag.forward_score(fresh), fresh)).sum() == 4.0


def test_impossible_terms_do_not_hide_low_scores():
    graph = ag.Graph.from_arrays(
        [0, 1, 0, 1],
        [0, 1, 2, 2],
        [0, 2, 1, 1],
        weight=np.array([0, 0, -np.inf, 0.0]),
        start=[0, 1],
        accept=[2],
    )
    array = np.zeros((40, 3))
    array[:, 2] = -1e5
    for count in (1, 2):
        emissions = ag.linear_graph(40, 3, array)
        products = [ag.intersect(graph, emissions)] * count
        scores = ag.forward_score(products)
        assert [score.item() for score in scores] == pytest.approx([-3.9e6] * count, rel=1e-9)
        rows = weights(ag.grad(scores, emissions)).reshape(40, 3).sum(1)
        assert rows == pytest.approx(np.full(40, count), abs=1e-6)
