"""Products with dense emissions on the tape: gradients, factors and memory."""

import gc
import os
import weakref

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction
from tools import run_python, snapshot, weights, with_dtype
from trellis_cases import back_off, dense, explicit, flower

import arcgrad as ag


@pytest.fixture
def graph():
    return back_off(3, 4, np.random.default_rng(0))


@pytest.fixture
def array():
    return np.random.default_rng(1).normal(size=(4, 3))


@pytest.fixture
def emissions(array):
    return dense(array)


@pytest.fixture
def built(graph, array):
    """The same product of other leaves, materialized."""
    return ag.intersect(with_dtype(graph, "float64"), explicit(array))


def test_calc_grad_of_a_product(graph, emissions):
    for first, second in ((True, False), (False, True), (True, True), (False, False)):
        graph.calc_grad, emissions.calc_grad = first, second
        product = ag.intersect(graph, emissions)
        assert product.calc_grad == (first or second)
        assert ag.forward_score(product).calc_grad == (first or second)
    with ag.no_grad():
        emissions.calc_grad = True
        assert not ag.intersect(graph, emissions).calc_grad


def test_the_dtype_of_a_product_is_the_wider_one(graph, array):
    narrow, wide = with_dtype(graph, "float32"), with_dtype(graph, "float64")
    assert ag.intersect(narrow, dense(array, "float32")).dtype == np.float32
    assert ag.intersect(wide, dense(array, "float32")).dtype == np.float64
    assert ag.intersect(narrow, dense(array, "float64")).dtype == np.float64


def test_the_gradient_of_a_product_is_its_arc_posteriors(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    gradient = ag.grad(ag.forward_score(product), product)
    truth = ag.grad(ag.forward_score(built), built)
    assert snapshot(gradient)[:7] == snapshot(truth)[:7]
    assert weights(gradient) == pytest.approx(weights(truth), abs=1e-12)


def test_gradients_of_a_product_and_its_factors_at_once(graph, emissions, built, array):
    other, arcs = with_dtype(graph, "float64"), explicit(array)
    middle = ag.intersect(other, arcs)
    truth = ag.grad(ag.forward_score(middle), [middle, other, arcs])
    product = ag.intersect(graph, emissions)
    found = ag.grad(ag.forward_score(product), [product, graph, emissions])
    for one, two in zip(found, truth, strict=True):
        assert weights(one) == pytest.approx(weights(two), abs=1e-12)


def test_the_gradient_of_a_best_score_to_a_product_is_its_best_path(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    gradient = ag.grad(ag.viterbi_score(product), product)
    truth = ag.grad(ag.viterbi_score(built), built)
    assert weights(gradient).tolist() == weights(truth).tolist()
    product.retain_grad()
    ag.backward(ag.viterbi_path(product))
    assert weights(product.grad()).tolist() == weights(truth).tolist()
    assert graph.is_grad_available()


def test_hessians_of_a_product(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    vector = direction(built, 2)
    found = ag.hvp(ag.forward_score(product), product, vector)
    truth = ag.hvp(ag.forward_score(built), built, vector)
    assert weights(found) == pytest.approx(weights(truth), abs=1e-12)


def test_retain_grad_on_a_product(graph, emissions, built):
    truth = weights(ag.grad(ag.forward_score(built), built))
    expected = [weights(g) for g in factor_gradients(graph, emissions)]
    product = ag.intersect(graph, emissions)
    with pytest.raises(RuntimeError, match=r"grad: .*retain_grad"):
        product.grad()
    product.retain_grad()
    ag.backward(ag.forward_score(product))
    assert weights(product.grad()) == pytest.approx(truth, abs=1e-12)
    for factor, gradient in zip((graph, emissions), expected, strict=True):
        assert weights(factor.grad()) == pytest.approx(gradient, abs=1e-12)


def factor_gradients(graph, emissions):
    return ag.grad(ag.forward_score(ag.intersect(graph, emissions)), [graph, emissions])


def test_a_product_as_root_of_backward(graph, emissions, array):
    other, arcs = with_dtype(graph, "float64"), explicit(array)
    ag.backward(ag.intersect(graph, emissions))
    ag.backward(ag.intersect(other, arcs))
    assert weights(graph.grad()).tolist() == weights(other.grad()).tolist()
    assert weights(emissions.grad()).tolist() == weights(arcs.grad()).tolist()


def test_one_product_in_fused_and_other_ops(graph, array):
    def program(g, e):
        product = ag.intersect(g, e)
        parts = [ag.forward_score(product), ag.viterbi_score(product)]
        parts.append(ag.forward_score(ag.scale(product, 0.5)))
        return ag.add(ag.add(parts[0], parts[1]), parts[2])

    assert_gradient(program, graph, dense(array))
    other, arcs = with_dtype(graph, "float64"), explicit(array)
    emissions = dense(array)
    found = ag.grad(program(graph, emissions), [graph, emissions])
    truth = ag.grad(program(other, arcs), [other, arcs])
    for one, two in zip(found, truth, strict=True):
        assert weights(one) == pytest.approx(weights(two), abs=1e-11)


def test_one_product_many_times_in_a_batch(graph, emissions):
    product = ag.intersect(graph, emissions)
    once = [weights(g) for g in factor_gradients(graph, emissions)]
    ag.backward(ag.forward_score([product] * 5))
    for factor, gradient in zip((graph, emissions), once, strict=True):
        assert weights(factor.grad()) == pytest.approx(5 * gradient, rel=1e-12, abs=1e-12)


def test_the_factors_may_be_results_of_ops(graph, array):
    def score(g, e):
        return ag.forward_score(ag.intersect(ag.scale(ag.union([g, ag.clone(g)]), 0.5), e))

    assert_gradient(score, graph, dense(array))
    assert_second_order(score, graph, dense(array))


def test_a_freed_tape_below_a_product_raises(graph, emissions):
    middle = ag.clone(graph)
    product = ag.intersect(middle, emissions)
    ag.backward(ag.forward_score(product))
    with pytest.raises(RuntimeError, match="freed"):
        ag.backward(ag.forward_score(product))


def test_a_product_can_be_scored_again_after_backward(graph, emissions):
    # Deferring must record nothing that is freed by the first backward.
    product = ag.intersect(graph, emissions)
    ag.backward(ag.forward_score(product), retain_graph=True)
    once = weights(graph.grad())
    ag.backward(ag.forward_score(product))
    assert weights(graph.grad()) == pytest.approx(2 * once, rel=1e-12)


def test_a_product_without_references_is_not_materialized_for_its_gradient(graph, emissions):
    product = ag.intersect(graph, emissions).retain_grad()
    score, without_tape = ag.forward_score(product), product.detach()
    handle = ag.Graph(product)
    del product
    ag.backward(score, retain_graph=True)
    assert handle.is_grad_available()
    assert "not built" not in repr(without_tape)
    product = ag.intersect(graph, emissions).retain_grad()
    score, without_tape = ag.forward_score(product), product.detach()
    del product
    ag.backward(score)
    assert "not built" in repr(without_tape)


def test_a_freed_score_releases_the_emissions_of_its_product():
    gc.disable()
    try:
        array = np.zeros((3, 2))
        emissions = ag.linear_graph(3, 2, array, copy=False)
        product = ag.intersect(flower(2, np.random.default_rng(0)), emissions)
        score = ag.forward_score(product)
        alive = weakref.ref(array)
        del array, emissions
        assert alive() is not None
        del product
        assert alive() is not None
        del score
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="ASan keeps freed memory")
def test_memory_is_flat_over_many_steps():
    code = """
import gc
import numpy as np
import psutil
import arcgrad as ag
from arcgrad import tokens
process = psutil.Process()
array = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
targets = [[1, 2, 3]] * 4
def step():
    emissions = [ag.linear_graph(50, 20, array, copy=False) for _ in targets]
    products = ag.intersect(tokens.ctc_graph(targets), emissions)
    scores = ag.forward_score(products)
    ag.backward(scores, create_graph=True)
    ag.grad(emissions[0].grad(), emissions[0])
gc.disable()
for _ in range(200):
    step()
before = process.memory_info().rss
for _ in range(1000):
    step()
print(process.memory_info().rss - before)
"""
    assert int(run_python(code)) < 5_000_000
