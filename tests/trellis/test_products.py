"""A product with dense emissions is deferred, and still a graph like any other."""

import copy
import gc
import math
import os
import pickle
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction, like
from hypothesis import given
from hypothesis import strategies as st
from spec import language
from tools import acceptor, build, run_python, snapshot, weights, with_dtype, with_weights
from trellis_cases import (
    CLASSES,
    asg,
    assert_near,
    back_off,
    bigram,
    cases,
    ctc,
    dense,
    explicit,
    flower,
    free_graphs,
)

import arcgrad as ag

every_class = pytest.mark.parametrize("kind", CLASSES)


def is_deferred(graph):
    return "product" in repr(graph)


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
def product(graph, emissions):
    return ag.intersect(graph, emissions)


@pytest.fixture
def built(graph, array):
    """The same product of other leaves, materialized."""
    return ag.intersect(with_dtype(graph, "float64"), explicit(array))


# What is deferred


def test_every_way_to_write_a_product_is_deferred(graph, emissions):
    products = [
        ag.intersect(graph, emissions),
        ag.intersect(emissions, graph),
        ag.compose(graph, emissions),
        ag.compose(emissions, graph),
        graph @ emissions,
        emissions @ graph,
        *ag.intersect([graph] * 2, emissions),
        *ag.compose(graph, [emissions] * 2),
        *ag.intersect([graph], [emissions]),
    ]
    assert all(map(is_deferred, products))
    assert all(isinstance(p, ag.Graph) for p in products)
    scores = [score.item() for score in ag.forward_score(products)]
    assert scores == pytest.approx([scores[0]] * len(products), rel=1e-12)


def test_only_products_with_one_dense_factor_are_deferred(graph, emissions, array):
    assert not is_deferred(ag.intersect(emissions, emissions))
    assert not is_deferred(ag.intersect(graph, graph))
    assert not is_deferred(ag.intersect(graph, explicit(array)))
    both = ag.forward_score(ag.intersect(emissions, dense(2 * array))).item()
    expected = ag.forward_score(ag.intersect(explicit(array), explicit(2 * array))).item()
    assert both == pytest.approx(expected, rel=1e-12)


def test_edited_emissions_are_ordinary_graphs(graph, array):
    longer = dense(array)
    node = longer.add_node(accept=True)
    longer.add_arc(len(array), node, 0, weight=0.5)
    other = explicit(array)
    other.add_arc(len(array), other.add_node(accept=True), 0, weight=0.5)
    assert snapshot(ag.intersect(graph, longer)) == snapshot(ag.intersect(graph, other))
    early = dense(array)
    early.make_accept(2)
    other = explicit(array)
    other.make_accept(2)
    found = ag.forward_score(ag.intersect(graph, early)).item()
    assert found == pytest.approx(ag.forward_score(ag.intersect(graph, other)).item(), rel=1e-12)


def test_results_of_ops_on_emissions_are_right(graph, array):
    # These may stay dense or not, which affects only speed.
    for op in (ag.clone, ag.negate, lambda g: ag.scale(g, 0.5), lambda g: ag.add(g, g)):
        leaf, other = dense(array), explicit(array)
        score = ag.forward_score(ag.intersect(graph, op(leaf)))
        expected = ag.forward_score(ag.intersect(graph, op(other)))
        assert score.item() == pytest.approx(expected.item(), rel=1e-12)
        gradient, truth = ag.grad(score, leaf), ag.grad(expected, other)
        assert weights(gradient) == pytest.approx(weights(truth), abs=1e-12)


def test_emissions_with_new_weights_stay_dense(graph, array):
    leaf = ag.linear_graph(*array.shape, dtype="float64")
    leaf.set_weights(array)
    assert is_deferred(ag.intersect(graph, leaf))
    assert is_deferred(ag.intersect(graph, copy.copy(leaf)))
    leaf.set_weight(0, 3.0)
    array = array.copy()
    array[0, 0] = 3.0
    found = ag.forward_score(ag.intersect(graph, leaf)).item()
    expected = ag.forward_score(ag.intersect(graph, explicit(array))).item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_repr_of_a_large_product_is_quick():
    # Materialized it would have 2.7 billion arcs.
    bigrams = bigram(30, np.random.default_rng(0))
    array = np.broadcast_to(np.zeros((1, 30), np.float32), (3_000_000, 30))
    emissions = ag.linear_graph(*array.shape, array, copy=False)
    begin = time.perf_counter()
    product = ag.intersect(bigrams, emissions)
    text = repr(product)
    assert ag.explain(product).kernel in {"dense", "csr", "diagonal", "lanes"}
    assert time.perf_counter() - begin < 1.0
    assert "product" in text
    assert len(text) < 2000


def test_intersect_still_checks_its_arguments(emissions):
    transducer = build(2, {0}, {1}, [(0, 1, 0, 1, 0.0)])
    with pytest.raises(ValueError, match=r"intersect: .*acceptor"):
        ag.intersect(transducer, emissions)
    with pytest.raises(ValueError, match=r"intersect \(element 1 of 2\): .*acceptor"):
        ag.intersect([acceptor((0,)), transducer], emissions)
    with pytest.raises(TypeError):
        ag.intersect(emissions, 3)


# Materializing a product


@every_class
@given(data=st.data())
def test_a_product_is_the_graph_it_stands_for(kind, data):
    case = data.draw(cases(kind, exact=True, sizes=(1,)))
    (array,) = case.arrays
    expected = snapshot(case.join(with_dtype(case.graph, "float64"), explicit(array)))
    leaf, emissions = with_dtype(case.graph, "float64"), dense(array)
    assert snapshot(case.join(leaf, emissions)) == expected
    narrow = snapshot(case.join(with_dtype(case.graph, "float32"), dense(array, "float32")))
    assert narrow[:7] == expected[:7]


ACCESSORS = {
    "num_nodes": lambda g: g.num_nodes(),
    "num_arcs": lambda g: g.num_arcs(),
    "num_start": lambda g: g.num_start(),
    "num_accept": lambda g: g.num_accept(),
    "start": lambda g: g.start().tolist(),
    "accept": lambda g: g.accept().tolist(),
    "is_start": lambda g: g.is_start(0),
    "is_accept": lambda g: g.is_accept(0),
    "src_nodes": lambda g: g.src_nodes().tolist(),
    "dst_nodes": lambda g: g.dst_nodes().tolist(),
    "ilabels": lambda g: g.ilabels().tolist(),
    "olabels": lambda g: g.olabels().tolist(),
    "arcs": lambda g: [column.tolist() for column in g.arcs()],
    "one arc": lambda g: (g.src_node(3), g.dst_node(3), g.ilabel(3), g.olabel(3), g.weight(3)),
    "in_arcs": lambda g: g.in_arcs(2).tolist(),
    "out_arcs": lambda g: g.out_arcs(0).tolist(),
    "weights_to_list": lambda g: g.weights_to_list(),
    "weights_to_numpy": lambda g: g.weights_to_numpy().tolist(),
    "weights_view": lambda g: g.weights_view().ravel().tolist(),
    "labels_to_list": lambda g: g.labels_to_list(),
    "dtype": lambda g: str(g.dtype),
    "is_acyclic": lambda g: g.is_acyclic(),
    "is_acceptor": lambda g: g.is_acceptor(),
}


@pytest.mark.parametrize("accessor", ACCESSORS)
def test_every_accessor_materializes_the_product(accessor, product, built):
    assert ACCESSORS[accessor](product) == ACCESSORS[accessor](built)
    # Once more, now that the arcs are materialized.
    assert ACCESSORS[accessor](product) == ACCESSORS[accessor](built)


OPS = {
    "clone": ag.clone,
    "project_input": ag.project_input,
    "project_output": ag.project_output,
    "invert": ag.invert,
    "reverse": ag.reverse,
    "connect": ag.connect,
    "negate": ag.negate,
    "scale": lambda g: ag.scale(g, 0.5),
    "add": lambda g: ag.add(g, g),
    "subtract": lambda g: ag.subtract(g, ag.scale(g, 3.0)),
    "union": lambda g: ag.union([g, g]),
    "concat": lambda g: ag.concat([g, g]),
    "closure": ag.closure,
    "remove": ag.remove,
    "arc_sort": ag.arc_sort,
    "top_sort": ag.top_sort,
    "shortest_distance": ag.shortest_distance,
    "arc_posteriors": ag.arc_posteriors,
    "sample": lambda g: ag.sample(g, seed=3),
    "forward_score": ag.forward_score,
    "viterbi_score": ag.viterbi_score,
    "viterbi_path": ag.viterbi_path,
    "compose": lambda g: ag.compose(g, flower(3, np.random.default_rng(5))),
    "intersect": lambda g: ag.intersect(flower(3, np.random.default_rng(5)), g),
    "itself": lambda g: ag.intersect(g, g),
}


@pytest.mark.parametrize("op", OPS)
def test_every_op_takes_a_product(op, graph, emissions, array):
    other, arcs = with_dtype(graph, "float64"), explicit(array)
    result = OPS[op](ag.intersect(graph, emissions))
    expected = OPS[op](ag.intersect(other, arcs))
    if op in {"compose", "intersect"}:  # re-associated: nodes may be numbered in another order
        result, expected = ag.forward_score(result), ag.forward_score(expected)
    assert snapshot(result)[:7] == snapshot(expected)[:7]
    assert weights(result) == pytest.approx(weights(expected), rel=1e-12, abs=1e-12)
    found = ag.grad(result, [graph, emissions])
    truth = ag.grad(expected, [other, arcs])
    for one, two in zip(found, truth, strict=True):
        assert weights(one) == pytest.approx(weights(two), rel=1e-11, abs=1e-11)


def test_products_are_compared_like_graphs(product, built):
    assert ag.equal(product, built)
    assert ag.equal(built, product)
    assert ag.isomorphic(product, built)
    assert ag.rand_equivalent(product, built, seed=0)


def test_files_of_products(product, built, tmp_path):
    ag.save(tmp_path / "graph.bin", product)
    assert snapshot(ag.load(tmp_path / "graph.bin")) == snapshot(built)
    ag.savetxt(tmp_path / "graph.txt", product)
    assert ag.equal(ag.loadtxt(tmp_path / "graph.txt"), ag.loadtxt(tmp_path / "graph.txt"))
    ag.write_dot(product, tmp_path / "graph.dot")
    ag.write_dot(built, tmp_path / "built.dot")
    assert (tmp_path / "graph.dot").read_text() == (tmp_path / "built.dot").read_text()


def test_copies_of_a_product_are_leaves_with_its_content(product, built, graph):
    for twin in (
        copy.copy(product),
        copy.deepcopy(product),
        pickle.loads(pickle.dumps(product)),
        product.detach(),
    ):
        assert snapshot(twin) == snapshot(built)
        twin.calc_grad = True
        ag.backward(ag.forward_score(twin))
        assert twin.is_grad_available()
        assert not graph.is_grad_available()


def test_materializing_a_product_changes_no_score(graph, emissions):
    fresh, seen = ag.intersect(graph, emissions), ag.intersect(graph, emissions)
    assert seen.num_arcs() > 0
    scores = ag.forward_score([fresh, seen])
    assert scores[0].item() == pytest.approx(scores[1].item(), rel=1e-12)
    for one, two in zip(
        ag.grad(scores[0], [graph, emissions]), ag.grad(scores[1], [graph, emissions]), strict=True
    ):
        assert weights(one) == pytest.approx(weights(two), abs=1e-12)


def test_many_threads_may_materialize_a_fresh_product(graph, emissions, built):
    expected = snapshot(built)
    for _ in range(5):
        product = ag.intersect(graph, emissions)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _, p=product: snapshot(p), range(8)))
        assert found == [expected] * 8


# Snapshots


def test_weights_set_later_do_not_change_a_product(graph, emissions, built):
    products = [ag.intersect(graph, emissions) for _ in range(2)]
    score = ag.forward_score(products[0])
    graph.set_weights(np.zeros(graph.num_arcs()))
    graph.set_weight(0, 5.0)
    emissions.set_weights(np.zeros(emissions.num_arcs()))
    assert snapshot(products[1]) == snapshot(built)
    assert ag.forward_score(products[0]).item() == score.item()
    truth = ag.forward_score(built).item()
    assert score.item() == pytest.approx(truth, rel=1e-12)


def test_gradients_after_weights_were_set_are_those_of_the_product(graph, emissions, array):
    other, arcs = with_dtype(graph, "float64"), explicit(array)
    truth = ag.grad(ag.forward_score(ag.intersect(other, arcs)), [other, arcs])
    product = ag.intersect(graph, emissions)
    graph.set_weights(np.zeros(graph.num_arcs()))
    emissions.set_weights(np.zeros(emissions.num_arcs()))
    found = ag.grad(ag.forward_score(product), [graph, emissions])
    for one, two in zip(found, truth, strict=True):
        assert weights(one) == pytest.approx(weights(two), abs=1e-12)


def test_arcs_added_later_do_not_change_a_product(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    score = ag.forward_score(product)
    graph.add_arc(0, 1, 0, weight=9.0)
    graph.make_start(1)
    assert ag.forward_score(product).item() == score.item()
    assert snapshot(product) == snapshot(built)
    with pytest.raises(RuntimeError, match=r"grad: .*changed"):
        ag.grad(score, graph)
    fresh = ag.forward_score(ag.intersect(graph, emissions)).item()
    assert fresh > score.item()


def test_editing_a_product_makes_it_an_ordinary_graph(graph, emissions, built):
    product = ag.intersect(graph, emissions)
    product.add_arc(product.add_node(start=True), 0, 0, weight=1.5)
    built.add_arc(built.add_node(start=True), 0, 0, weight=1.5)
    assert not is_deferred(product)
    assert snapshot(product) == snapshot(built)
    assert ag.forward_score(product).item() == pytest.approx(
        ag.forward_score(built).item(), rel=1e-12
    )
    assert graph.num_nodes() == 4
    assert snapshot(ag.intersect(graph, emissions)) != snapshot(product)


def test_setting_the_weights_of_a_product_makes_it_a_leaf(graph, emissions):
    product = ag.intersect(graph, emissions)
    values = direction(product, 1)
    product.set_weights(values)
    assert product.weights_to_list() == values.tolist()
    ag.backward(ag.forward_score(product))
    assert product.is_grad_available()
    assert not graph.is_grad_available()
    product = ag.intersect(graph, emissions)
    product.set_weight(2, 7.0)
    assert product.weight(2) == 7.0
    assert ag.forward_score(product).item() == ag.forward_score(copy.copy(product)).item()


# The tape


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


# Re-association


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
    # The score is computed from the factors, so nothing passes through the product in between.
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
