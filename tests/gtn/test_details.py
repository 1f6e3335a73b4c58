"""Details of `arcgrad.gtn` that programs written for gtn rely on."""

import copy
import ctypes
import gc
import math
import pickle

import numpy as np
import pytest

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon


def one_arc(weight=0.0, src=0, dst=1, labels=(0, 0), start=(0,), accept=(1,), num_nodes=2):
    """A graph with one arc, of any structure."""
    graph = gtn.Graph()
    for node in range(num_nodes):
        graph.add_node(node in start, node in accept)
    graph.add_arc(src, dst, *labels, weight)
    return graph


def fork(*arc_weights, labels=None):
    """Parallel arcs from a start to an accept node."""
    graph = gtn.Graph()
    graph.add_node(True)
    graph.add_node(False, True)
    for i, weight in enumerate(arc_weights):
        label = i if labels is None else labels[i]
        graph.add_arc(0, 1, label, label, weight)
    return graph


# Numbers

ONE_ARC = [
    {},
    {"labels": (3, 4)},
    {"dst": 0},
    {"src": 1, "dst": 0, "num_nodes": 5},
    {"start": ()},
    {"accept": ()},
    {"start": (0, 1), "accept": (0, 1)},
]


@pytest.mark.parametrize("first", ONE_ARC)
@pytest.mark.parametrize("second", ONE_ARC)
def test_any_two_graphs_with_one_arc_are_added(first, second):
    a, b = one_arc(5.0, **first), one_arc(2.0, **second)
    total, difference = gtn.add(a, b), gtn.subtract([a], [b])[0]
    assert gtn.equal(total, one_arc(7.0, **first))
    assert gtn.equal(difference, one_arc(3.0, **first))
    gtn.backward([total, difference])
    assert a.grad().item() == 2.0
    assert b.grad().item() == 0.0
    gtn.backward(gtn.negate(gtn.add(a, b)))
    assert gtn.equal(b.grad(), one_arc(-1.0, **second))


@pytest.mark.parametrize("weight", [math.inf, -math.inf])
def test_infinite_numbers_are_added_and_have_gradient_one(weight):
    a, b = one_arc(5.0, dst=0), one_arc(weight, labels=(3, 4))
    for total in (gtn.add(a, b), gtn.add(b, a)):
        assert total.item() == weight
        gtn.backward(total)
    assert a.grad().item() == b.grad().item() == 2.0


def test_numbers_keep_their_digits_and_second_derivatives():
    a, b = one_arc(1.0, dst=0), one_arc(0.5)
    loop = gtn.closure(gtn.subtract(b, gtn.add(a, gtn.scalar_graph(1.0))))
    score = gtn.forward_score(loop)
    ratio = math.exp(-1.5) / (1 - math.exp(-1.5))
    assert score.item() == pytest.approx(-math.log(1 - math.exp(-1.5)))
    assert ag.hvp(score, a, [1.0]).item() == pytest.approx(ratio * (1 + ratio))
    exact = gtn.add(one_arc(1.0, dst=0), gtn.forward_score(fork(0.0, 0.0)))
    assert exact.item() == 1.0 + math.log(2)


def test_numbers_without_gradient_are_added():
    a, b = one_arc(5.0, dst=0), one_arc(2.0)
    b.calc_grad = False
    gtn.backward(gtn.add(a, b))
    assert a.grad().item() == 1.0
    assert not b.is_grad_available()
    with ag.no_grad():
        total = gtn.add(one_arc(2.0), a)
    assert total.item() == 7.0
    assert not total.calc_grad


# Arguments


@pytest.mark.parametrize("kind", [bool, int, np.bool_, np.int64])
@pytest.mark.parametrize("value", [True, False])
def test_numbers_and_numpy_bools_are_bools(kind, value):
    truth = kind(value)
    graph = gtn.Graph(truth)
    assert graph.calc_grad is value
    assert gtn.Graph(calc_grad=truth).calc_grad is value
    graph.add_node(truth, accept=truth)
    graph.add_arc(0, 0, 1, 2)
    assert (graph.num_start(), graph.num_accept()) == (value, value)
    assert graph.labels_to_list(truth) == [1 if value else 2]
    graph.arc_sort(truth)
    graph.mark_arc_sorted(olabel=truth)
    graph.calc_grad = truth
    assert graph.calc_grad is value
    cpu = gtn.Device(gtn.CPU)
    for make, arguments in ((gtn.linear_graph, (2, 3)), (gtn.scalar_graph, (1.0,))):
        assert make(*arguments, truth).calc_grad is value
        assert make(*arguments, calc_grad=truth).calc_grad is value
        assert make(*arguments, cpu, truth).calc_grad is value
    score = gtn.forward_score(fork(1.0))
    gtn.backward(score, truth)
    if value:
        gtn.backward(score)
    with pytest.raises(ValueError, match="backward"):
        gtn.backward(score)


def test_strings_and_lists_are_not_bools():
    graph = gtn.Graph()
    with pytest.raises(TypeError, match=r"^add_node: start must be a bool, but it is 'yes'"):
        graph.add_node("yes")
    with pytest.raises(TypeError, match=r"^Graph: calc_grad must be a bool, but it is \[\]"):
        gtn.Graph([])
    with pytest.raises(TypeError, match=r"^calc_grad: the value must be a bool, but it is 'no'"):
        graph.calc_grad = "no"
    for device in (gtn.CPU, None, "cpu"):
        with pytest.raises(TypeError, match="linear_graph: device must be a Device"):
            gtn.linear_graph(2, 3, device)
    assert graph.num_nodes() == 0


@pytest.mark.parametrize("name", ["add", "subtract", "compose", "intersect"])
def test_a_missing_graph_is_named(name):
    call, graph = getattr(gtn, name), fork(1.0)
    rule = "must be a graph or a list of graphs, but it is"
    with pytest.raises(TypeError, match=f"^{name}: the second argument {rule} missing"):
        call(graph)
    with pytest.raises(TypeError, match=f"^{name}: the first argument {rule} missing"):
        call(g2=graph)
    with pytest.raises(TypeError, match=f"^{name}: the second argument {rule} 3"):
        call(graph, 3)


@pytest.mark.parametrize("name", ["backward", "remove", "clone", "forward_score"])
def test_a_call_without_graphs_names_the_function(name):
    for arguments in ((), (None,)):
        with pytest.raises(TypeError, match=rf"^{name}: .* a list of graphs, but it is missing"):
            getattr(gtn, name)(*arguments)


# Addresses


def read_floats(address, size):
    return np.frombuffer((ctypes.c_float * size).from_address(address), np.float32).tolist()


def fill_memory():
    """Overwrite freed memory."""
    gc.collect()
    return [np.full(size, 77.0, np.float32) for size in (1, 2, 4, 1000) for _ in range(200)]


def test_an_address_survives_later_calls():
    graph = gtn.linear_graph(10, 100)
    address = graph.weights()
    graph.set_weights(np.arange(1000))
    assert read_floats(address, 1000) == [0.0] * 1000
    assert graph.weights() == address
    other = fill_memory()
    assert read_floats(address, 1000) == list(range(1000))
    assert len(other) == 800


def test_an_address_survives_new_arcs():
    graph = fork(1.0, 2.0)
    address = graph.weights()
    graph.add_arc(0, 1, 2, 2, 3.0)
    assert read_floats(graph.weights(), 3) == [1.0, 2.0, 3.0]
    other = fill_memory()
    assert read_floats(address, 2) == [1.0, 2.0]
    assert len(other) == 800


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_address_lives_as_long_as_any_handle(dtype):
    graph = gtn.Graph(ag.linear_graph(10, 100, dtype=dtype))
    address = gtn.Graph(graph).weights()
    assert gtn.Graph(gtn.Graph(graph)).weights() == address
    handle = gtn.Graph(graph)
    del graph
    other = fill_memory()
    assert read_floats(address, 1000) == [0.0] * 1000
    assert handle.weights() == address
    assert len(other) == 800


def test_the_address_of_a_gradient_lives_with_its_graph():
    score = gtn.forward_score(fork(0.0, 0.0))
    gtn.backward(score, True)
    address = score.grad().weights()
    other = fill_memory()
    assert read_floats(address, 1) == [1.0]
    assert gtn.Graph(score).grad().weights() == address
    gtn.backward(score)
    assert read_floats(score.grad().weights(), 1) == [2.0]
    assert len(other) == 800


def test_the_next_gradient_has_another_address():
    graph = fork(0.0, 0.0)
    gtn.backward(gtn.forward_score(graph))
    first = graph.grad()
    address = first.weights()
    graph.zero_grad()
    gtn.backward(gtn.negate(gtn.forward_score(graph)))
    assert read_floats(graph.grad().weights(), 2) == [-0.5, -0.5]
    assert read_floats(address, 2) == [0.5, 0.5]
    assert first.weights() == address


def test_writing_to_an_address_changes_no_graph():
    graph = fork(1.0, 2.0)
    cloned = gtn.clone(graph)
    (ctypes.c_float * 2).from_address(cloned.weights())[0] = 9.0
    assert graph.weights_to_list() == cloned.weights_to_list() == [1.0, 2.0]


# Labels


def test_the_empty_string_has_no_label_and_no_arc():
    graph = gtn.remove(fork(1.5, labels=[epsilon]))
    assert (graph.num_nodes(), graph.num_arcs(), graph.num_accept()) == (1, 0, 1)
    assert graph.labels_to_list() == graph.labels_to_list(False) == []
    assert gtn.forward_score(graph).item() == 0.0


def test_an_epsilon_arc_that_was_not_removed_is_listed():
    assert fork(1.5, labels=[epsilon]).labels_to_list() == [epsilon]
    assert gtn.scalar_graph(1.5).labels_to_list() == [epsilon]
    assert gtn.remove(one_arc(labels=(epsilon, 4))).labels_to_list() == [epsilon]
    assert gtn.remove(one_arc(labels=(epsilon, 4))).labels_to_list(False) == [4]


@pytest.mark.parametrize(
    "keep", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph)), gtn.Graph]
)
def test_copies_are_graphs_of_gtn(keep):
    graph = keep(fork(1.5, 2.5))
    assert type(graph) is gtn.Graph
    assert type(graph).__name__ == "Graph"
    assert gtn.equal(graph, fork(1.5, 2.5))
    assert graph.calc_grad


# Comparison and text


def test_equal_compares_the_order_of_arcs():
    first, second = fork(1.0, 2.0, labels=[0, 1]), fork(2.0, 1.0, labels=[1, 0])
    assert not gtn.equal(first, second)
    assert ag.equal(first, second)
    assert gtn.isomorphic(first, second)
    assert gtn.equal(first, fork(1.0, 2.0))
    assert gtn.equal(fork(math.nan, -math.inf), fork(math.nan, -math.inf))


def test_text_files_have_no_comments(tmp_path):
    path = tmp_path / "graph.txt"
    gtn.savetxt(path, gtn.forward_score(fork(0.1, 0.1)))
    weight = np.float32(np.float32(0.1) + math.log(2))
    assert path.read_text() == f"0\n1\n0 1 -1 -1 {weight!s}\n"
    assert gtn.loadtxt(path).weights_to_numpy() == weight
    gtn.savetxt(path, one_arc(1.5, num_nodes=4))
    assert path.read_text() == "0\n1\n0 1 0 0 1.5\n"
    gtn.savetxt(path, gtn.Graph())
    assert gtn.equal(gtn.loadtxt(path), gtn.Graph())


def test_repr_does_not_materialize_a_large_product():
    tokens = gtn.Graph(False)
    tokens.add_node(True, True)
    for label in range(300):
        tokens.add_arc(0, 0, label)
    product = gtn.intersect(tokens, gtn.linear_graph(20_000, 300))
    assert repr(product) == (
        "Graph(product of (1 node, 300 arcs) and (linear 20000 x 300), not built, float32, "
        "calc_grad)"
    )
    assert "not built" in ag.Graph.__repr__(product)


def test_repr_of_a_small_product_is_the_text_format():
    product = gtn.Graph(ag.intersect(fork(1.0, 2.0), gtn.linear_graph(1, 2)))
    assert "not built" in ag.Graph.__repr__(product)
    assert repr(product) == "0\n1\n0 1 0 0 1\n0 1 1 1 2\n"


@pytest.mark.parametrize("num_frames", [20, 500])
def test_only_small_products_keep_a_gradient_without_retain_grad(num_frames):
    graph = gtn.remove(gtn.closure(gtn.linear_graph(1, 30, False)))
    emissions = gtn.linear_graph(num_frames, 30)
    product = gtn.intersect(graph, emissions)
    asked = gtn.intersect(graph, emissions)
    asked.retain_grad()
    gtn.backward(gtn.add(gtn.forward_score(product), gtn.forward_score(asked)))
    assert emissions.grad().weights_to_numpy() == pytest.approx(2 / 30)
    assert asked.grad().weights_to_numpy() == pytest.approx(1 / 30)
    if num_frames < 100:
        assert product.grad().weights_to_numpy() == pytest.approx(1 / 30)
        return
    with pytest.raises(RuntimeError, match=r"retain_grad\(\) on it before backward"):
        product.grad()
    assert product.num_arcs() == num_frames * 30
