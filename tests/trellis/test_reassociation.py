"""Products of several graphs and emissions, which are re-associated."""

import copy
import math
import time

import numpy as np
import pytest
from gradients import direction, like
from hypothesis import given
from hypothesis import strategies as st
from spec import language
from tools import build, weights, with_dtype, with_weights
from trellis_cases import (
    asg,
    assert_near,
    back_off,
    bigram,
    ctc,
    dense,
    explicit,
    flower,
    free_graphs,
    is_deferred,
)

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


def ways(g, h, e):
    """All orders of the intersection of three acceptors."""
    return [
        ag.intersect(ag.intersect(g, e), h),
        ag.intersect(ag.intersect(e, g), h),
        ag.intersect(h, ag.intersect(g, e)),
        ag.intersect(h, ag.intersect(e, g)),
        ag.intersect(g, ag.intersect(h, e)),
        ag.intersect(ag.intersect(h, e), g),
        ag.intersect(ag.intersect(g, h), e),
        ag.intersect(e, ag.intersect(h, g)),
    ]


def assert_all_equal_materialized(products, inputs, expected, others):
    """Scores, gradients and Hessian-vector products equal those of a materialized product."""
    vectors = [direction(g, phase) for phase, g in enumerate(inputs)]
    gradients = ag.grad(expected, others)
    hessian = ag.hvp(expected, others, vectors)
    for product in products:
        score = ag.forward_score(product)
        assert score.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-10)
        for one, two in zip(ag.grad(score, inputs), gradients, strict=True):
            assert_near(weights(one), weights(two), 1e-10, "gradient")
        for one, two in zip(ag.hvp(score, inputs, vectors), hessian, strict=True):
            assert_near(weights(one), weights(two), 1e-8, "hvp")


@given(
    free_graphs(transducer=False, epsilon=True, max_arcs=6),
    free_graphs(transducer=False, epsilon=True, max_arcs=6),
    st.integers(0, 1000),
)
def test_the_order_of_intersections_does_not_matter(first, second, seed):
    g, h = first[1], second[1]
    array = np.random.default_rng(seed).normal(size=(seed % 4, 3))
    e = dense(array)
    products = ways(g, h, e)
    assert all(map(is_deferred, products))
    others = [with_dtype(g, "float64"), with_dtype(h, "float64"), explicit(array)]
    expected = ag.forward_score(ag.intersect(ag.intersect(others[0], others[1]), others[2]))
    assert_all_equal_materialized(products, [g, h, e], expected, others)


def test_three_graphs_and_emissions():
    rng = np.random.default_rng(0)
    target, transitions, loop = ctc([1, 2]), bigram(3, rng), flower(3, rng)
    array = rng.normal(size=(6, 3))
    e = dense(array)
    products = [
        ag.intersect(ag.intersect(ag.intersect(target, e), transitions), loop),
        ag.intersect(loop, ag.intersect(transitions, ag.intersect(e, target))),
        ag.intersect(ag.intersect(target, transitions), ag.intersect(loop, e)),
        ag.intersect(ag.intersect(e, target), ag.intersect(transitions, loop)),
    ]
    assert all(map(is_deferred, products))
    inputs = [target, transitions, loop, e]
    others = [*(with_dtype(g, "float64") for g in inputs[:3]), explicit(array)]
    joined = ag.intersect(ag.intersect(others[0], others[1]), others[2])
    expected = ag.forward_score(ag.intersect(joined, others[3]))
    assert_all_equal_materialized(products, inputs, expected, others)


@given(
    free_graphs(transducer=True, epsilon=False, max_nodes=3, max_arcs=6),
    free_graphs(transducer=True, epsilon=False, max_nodes=3, max_arcs=6),
    st.integers(0, 1000),
)
def test_transducers_around_emissions(first, second, seed):
    g, h = first[1], second[1]
    array = np.random.default_rng(seed).normal(size=(seed % 3, 3))
    e, x = dense(array), explicit(array)
    pairs = [
        (ag.compose(ag.compose(e, g), h), ag.compose(ag.compose(x, g), h)),
        (ag.compose(e, ag.compose(g, h)), ag.compose(x, ag.compose(g, h))),
        (ag.compose(g, ag.compose(h, e)), ag.compose(g, ag.compose(h, x))),
        (ag.compose(ag.compose(g, h), e), ag.compose(ag.compose(g, h), x)),
        (ag.compose(ag.compose(g, e), h), ag.compose(ag.compose(g, x), h)),
        (ag.compose(g, ag.compose(e, h)), ag.compose(g, ag.compose(x, h))),
    ]
    for found, truth in pairs:
        if not truth.is_acyclic():
            continue
        one, two = ag.forward_score(found), ag.forward_score(truth)
        assert one.item() == pytest.approx(two.item(), rel=1e-10, abs=1e-10)
        best = ag.viterbi_score(truth).item()
        assert ag.viterbi_score(found).item() == pytest.approx(best, rel=1e-10, abs=1e-10)
        gradients = ag.grad(one, [g, h, e])
        expected = [*ag.grad(two, [g, h]), ag.grad(two, x)]
        for a, b in zip(gradients, expected, strict=True):
            assert_near(weights(a), weights(b), 1e-10, "gradient")


RELABEL = [(0, 1, 0, 2, 0.5), (1, 1, 1, 1, -0.25), (1, 1, 2, 0, 0.125), (1, 0, 0, 0, -1.0)]


@pytest.mark.parametrize("accepted", ["back-off", "bigram", "with epsilons"])
def test_a_transducer_between_emissions_and_an_acceptor(accepted, array):
    # The acceptor is matched by labels that the transducer reads, on either side of it.
    rng = np.random.default_rng(2)
    made = {
        "back-off": back_off(3, 4, rng),
        "bigram": bigram(3, rng, missing=0.2),
        "with epsilons": build(
            2, {0}, {1}, [(0, 0, 0), (0, 1, -1), (1, 0, 2), (1, 1, 1), (1, 1, 0)]
        ),
    }
    g, e = made[accepted], dense(array)
    other, x = with_dtype(g, "float64"), explicit(array)
    before = build(2, {0}, {0, 1}, RELABEL)
    after = build(2, {0}, {0, 1}, [(s, d, o, i, w) for s, d, i, o, w in RELABEL])
    sides = [
        (
            before,
            ag.compose(before, ag.compose(e, g)),
            lambda h: ag.compose(h, ag.compose(x, other)),
        ),
        (after, ag.compose(ag.compose(g, e), after), lambda h: ag.compose(ag.compose(other, x), h)),
    ]
    for h, product, build_out in sides:
        assert not ag.equal(ag.project_input(h), ag.project_output(h))
        assert is_deferred(product)
        copied = with_dtype(h, "float64")
        truth = build_out(copied)
        assert language(product) == pytest.approx(language(truth), abs=1e-10)
        assert len(language(truth)) > 3
        expected = ag.forward_score(truth)
        assert_all_equal_materialized([product], [g, h, e], expected, [other, copied, x])
        best, found = ag.viterbi_path(truth), ag.viterbi_path(product)
        assert ag.viterbi_score(product).item() == pytest.approx(
            ag.viterbi_score(truth).item(), rel=1e-12
        )
        assert spelled(found) == spelled(best)


def spelled(path):
    """The labels of a path on either side, without epsilons."""
    sides = path.labels_to_list(), path.labels_to_list(False)
    return [[label for label in side if label != ag.epsilon] for side in sides]


def test_products_of_products(graph, emissions, array):
    # Two emissions in one product cannot be re-associated, but the value is right.
    product = ag.intersect(ag.intersect(graph, emissions), ag.intersect(graph, dense(array)))
    other = with_dtype(graph, "float64")
    truth = ag.intersect(ag.intersect(other, explicit(array)), ag.intersect(other, explicit(array)))
    assert ag.forward_score(product).item() == pytest.approx(
        ag.forward_score(truth).item(), rel=1e-10
    )


def test_a_re_associated_product_does_not_build_all_transitions():
    # T x C^2 arcs would be 300 million.
    rng = np.random.default_rng(0)
    bigrams, e = bigram(300, rng), ag.linear_graph(2000, 300)
    begin = time.perf_counter()
    product = ag.intersect(ag.intersect(bigrams, e), asg([5, 17, 5, 200], rng))
    score = ag.forward_score(product).item()
    assert math.isfinite(score)
    assert time.perf_counter() - begin < 5.0


def test_lists_of_products_are_re_associated(graph, array):
    batch = [dense(array), dense(array[:2])]
    loops = [flower(3, np.random.default_rng(k)) for k in range(2)]
    products = ag.intersect(ag.intersect(graph, batch), loops)
    assert all(map(is_deferred, products))
    for product, loop, e in zip(products, loops, batch, strict=True):
        truth = ag.intersect(ag.intersect(graph, loop), with_dtype(e, "float64"))
        assert ag.forward_score(product).item() == pytest.approx(
            ag.forward_score(truth).item(), rel=1e-10
        )


def test_explain_says_what_was_re_associated(graph, emissions):
    product = ag.intersect(ag.intersect(graph, emissions), flower(3, np.random.default_rng(0)))
    text = repr(product) + ag.explain(product).reason
    assert "product" in text


def test_a_product_composed_again_has_no_gradient_without_retain_grad(graph, emissions):
    # The score is computed from the factors, so no gradient passes through the inner product.
    loop = flower(3, np.random.default_rng(0))
    inner = ag.intersect(graph, emissions)
    score = ag.forward_score(ag.intersect(inner, loop))
    with pytest.raises(RuntimeError, match=r"grad: .*product.*retain_grad"):
        ag.grad(score, inner)
    inner = ag.intersect(graph, emissions)
    inner.retain_grad()
    score = ag.forward_score(ag.intersect(inner, loop))
    other = copy.copy(inner)
    other.calc_grad = True
    expected = ag.grad(ag.forward_score(ag.intersect(other, loop)), other)
    assert weights(ag.grad(score, inner)) == pytest.approx(weights(expected), abs=1e-11)
    ag.backward(score)
    assert weights(inner.grad()) == pytest.approx(weights(expected), abs=1e-11)
    assert graph.is_grad_available()


def test_a_product_with_new_weights_is_not_re_associated(graph, emissions):
    loop = flower(3, np.random.default_rng(0))
    inner = ag.intersect(graph, emissions)
    inner.set_weights(direction(inner, 3))
    found = ag.forward_score(ag.intersect(inner, loop)).item()
    expected = ag.forward_score(ag.intersect(copy.copy(inner), loop)).item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_seeds_have_the_shape_of_a_product(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    seed = like(built, direction(built, 1))
    found = ag.grad(product, graph, seed)
    again = with_weights(graph, weights(graph))
    truth = ag.grad(ag.intersect(again, explicit(emissions.weights_view())), again, seed)
    assert weights(found) == pytest.approx(weights(truth), abs=1e-12)
