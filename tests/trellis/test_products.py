"""A product with dense emissions is deferred, and still a graph like any other."""

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gradients import direction
from hypothesis import given
from hypothesis import strategies as st
from tools import acceptor, build, snapshot, weights, with_dtype
from trellis_cases import CLASSES, back_off, bigram, cases, dense, explicit, flower, is_deferred

import arcgrad as ag

every_class = pytest.mark.parametrize("kind", CLASSES)


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


def test_every_kind_of_product_is_deferred(graph, emissions):
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


def test_repr_of_a_large_product_is_fast():
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
