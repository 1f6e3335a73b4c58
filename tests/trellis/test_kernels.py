"""Scores of products with dense emissions: every kernel against materialized products in float64.

`test_products.py` tests products as graphs.
"""

import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction
from hypothesis import given
from hypothesis import strategies as st
from tools import build, snapshot, weights, with_dtype
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
    every_class,
    every_dtype,
    every_kernel,
    explicit,
    flower,
    forced,
    fused,
    generator,
    log_total,
    reference,
    rivals,
    runs,
    same_bits,
    sample_case,
)

import arcgrad as ag
from arcgrad import _core, tokens

# Fused equals unfused


@every_class
@given(data=st.data())
def test_the_references_agree(kind, data):
    case = data.draw(cases(kind))
    for score, array in zip(reference(case, second=False).scores, case.arrays, strict=True):
        expected = log_total(case.graph, case.side, array)
        assert score == pytest.approx(expected, rel=1e-11, abs=1e-11)


@every_dtype
@every_class
@given(data=st.data())
def test_every_kernel_equals_the_materialized_product(kind, dtype, data):
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


def test_forcing_a_kernel_that_cannot_run_a_graph_is_an_error():
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
    # A list is planned as one batch, also with products of many kinds and plain graphs.
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


def test_a_batch_with_one_graph_uses_the_lanes_kernel():
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


# Regression tests


def loop(label):
    return ag.Graph.from_arrays([0], [0], [label], start=[0], accept=[0])


def test_a_dead_state_that_does_not_accept_does_not_change_the_score():
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
def test_a_product_composed_again_has_no_partial_gradient(use):
    product = ag.intersect(loop(1), ag.linear_graph(4, 5))
    scores = [ag.forward_score(product), ag.forward_score(use(product))]
    with pytest.raises(RuntimeError, match="computed directly from its factors"):
        ag.grad(scores, product)
    with pytest.raises(RuntimeError, match="computed directly from its factors"):
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
