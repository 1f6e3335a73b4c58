"""Bitwise equal results for any number of threads, any other examples of a batch, checkpoints."""

import math

import numpy as np
import pytest
from tools import run_python, snapshot
from trellis_cases import (
    KERNELS,
    Case,
    every_dtype,
    every_kernel,
    forced,
    fused,
    same_bits,
    sample_case,
)

import arcgrad as ag

# The same bits


@every_kernel
@every_dtype
def test_results_are_bitwise_equal_for_any_number_of_threads(kernel, dtype, threads):
    case = sample_case(kernel, count=37)
    found = []
    for number in (1, 2, 5):
        threads(number)
        with forced(kernel):
            found.append(fused(case, dtype))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


@every_dtype
def test_mixed_batches_are_bitwise_equal_for_any_number_of_threads(dtype, threads):
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


def large_bigram(size, seed=0):
    """Enough arcs that the matrix product of one frame runs on several threads."""
    nodes = np.arange(size, dtype=np.int32)
    return ag.Graph.from_arrays(
        np.concatenate([np.full(size, size), np.repeat(nodes, size)]),
        np.concatenate([nodes, np.tile(nodes, size)]),
        np.concatenate([nodes, np.tile(nodes, size)]),
        weight=np.random.default_rng(seed).normal(size=size + size**2),
        start=[size],
        accept=nodes,
    )


@every_dtype
@pytest.mark.parametrize("limit", [None, 0])
def test_threads_within_a_frame_keep_results_bitwise_equal(dtype, limit, threads, history_limit):
    rng = np.random.default_rng(1)
    graph = large_bigram(341)
    case = Case("first", graph, [rng.normal(size=(n, 341)) for n in (300, 40, 1, 0)])
    if limit is not None:
        history_limit(limit)
    found = []
    for number in (1, 2, 5):
        threads(number)
        assert ag.explain(case.products()[0]).kernel == "dense"
        found.append(fused(case, dtype))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


def large_sparse(kind, seed=0):
    """Enough arcs that the states of one frame are divided among threads."""
    rng = np.random.default_rng(seed)
    if kind == "back-off":  # every label leads to its own node, and all nodes to one
        size, extra = 600, 3000
        pairs = rng.choice(size**2, extra, replace=False)
        src = np.concatenate([pairs // size, np.arange(size), np.full(size, size)])
        dst = np.concatenate([pairs % size, np.full(size, size), np.arange(size)])
        label = np.concatenate([pairs % size, np.full(size, ag.epsilon), np.arange(size)])
        start, accept = [size], [3, size]
    else:  # several labels and epsilon arcs lead to every node
        size, extra = 300, 5000
        src, dst = rng.integers(0, size, (2, extra))
        label = rng.integers(0, 50, extra)
        silent = (rng.random(extra) < 0.1) & (src < dst)
        label[silent] = ag.epsilon
        start, accept = [0, 5], [1, size - 1]
    return ag.Graph.from_arrays(
        src, dst, label, weight=rng.normal(size=len(src)) - 3, start=start, accept=accept
    )


@every_dtype
@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("kind", ["back-off", "many labels"])
@pytest.mark.parametrize("lengths", [(90, 33, 90, 1, 0), (70,)], ids=["lanes", "csr"])
def test_threads_within_a_frame_of_a_sparse_graph_keep_results_bitwise_equal(
    dtype, limit, kind, lengths, threads, history_limit
):
    rng = np.random.default_rng(1)
    graph = large_sparse(kind)
    num_labels = 1 + max(graph.ilabels())
    arrays = [rng.normal(size=(n, num_labels)) for n in lengths]
    case = Case("acceptor", graph, arrays)
    if limit is not None:
        history_limit(limit)
    found = []
    for number in (1, 2, 5):
        threads(number)
        found.append(fused(case, dtype, second=False))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


def test_a_bad_emission_of_a_sparse_graph_is_named_when_threads_share_a_frame(threads):
    threads(2)
    graph = large_sparse("back-off")
    arrays = [np.zeros((50, 600), np.float32) for _ in range(5)]
    arrays[2][31, 7] = arrays[2][31, 599] = arrays[4][2, 0] = np.nan
    products = ag.intersect(graph, [ag.linear_graph(50, 600, array) for array in arrays])
    with pytest.raises(ValueError, match=r"element 2 of 5.*label 7 at frame 31 is nan"):
        ag.forward_score(products)


def test_a_bad_emission_is_named_when_threads_share_a_frame(threads):
    threads(2)
    array = np.zeros((50, 400), np.float32)
    array[31, 7] = np.nan
    product = ag.intersect(large_bigram(400), ag.linear_graph(50, 400, array))
    with pytest.raises(ValueError, match="label 7 at frame 31 is nan"):
        ag.forward_score(product)


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
def test_checkpoints_keep_results_bitwise_equal(kernel, dtype):
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
def test_the_history_limit_keeps_results_bitwise_equal(kernel, history_limit):
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
    # The rest is for the process itself, and for emissions converted to pairs.
    assert peak <= bound + 4_000_000
