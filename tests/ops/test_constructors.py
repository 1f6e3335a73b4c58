"""linear_graph, scalar_graph and chain_graph."""

import math

import numpy as np
import pytest

import arcgrad as ag


def test_linear_graph_numbers_arcs_by_frame_and_label():
    graph = ag.linear_graph(3, 2)
    assert (graph.num_nodes(), graph.num_arcs()) == (4, 6)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0], [3])
    assert graph.src_nodes().tolist() == [0, 0, 1, 1, 2, 2]
    assert graph.dst_nodes().tolist() == [1, 1, 2, 2, 3, 3]
    assert graph.ilabels().tolist() == graph.olabels().tolist() == [0, 1] * 3
    assert graph.in_arcs(1).tolist() == [0, 1]
    assert graph.out_arcs(1).tolist() == [2, 3]
    assert graph.weights_to_list() == [0.0] * 6


def test_linear_graph_has_a_gradient_by_default():
    assert ag.linear_graph(2, 2).calc_grad
    assert not ag.linear_graph(2, 2, calc_grad=False).calc_grad


def test_linear_graph_without_frames_accepts_the_empty_string():
    graph = ag.linear_graph(0, 5)
    assert (graph.num_nodes(), graph.num_arcs()) == (1, 0)
    assert graph.is_start(0)
    assert graph.is_accept(0)
    assert ag.forward_score(graph).item() == 0.0


def test_linear_graph_without_labels_has_no_path():
    graph = ag.linear_graph(2, 0)
    assert (graph.num_nodes(), graph.num_arcs()) == (3, 0)
    assert ag.forward_score(graph).item() == -math.inf


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_graph_takes_the_dtype_of_its_weights(dtype):
    weights = np.arange(6, dtype=dtype).reshape(3, 2)
    graph = ag.linear_graph(3, 2, weights)
    assert graph.dtype == np.dtype(dtype)
    assert graph.weights_view().shape == (3, 2)
    assert np.array_equal(graph.weights_view(), weights)


def test_linear_graph_copies_by_default():
    weights = np.zeros((3, 2), np.float32)
    copied = ag.linear_graph(3, 2, weights)
    weights[1, 1] = 5.0
    assert copied.weight(3) == 0.0


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (5,), (3, 2, 2)])
def test_linear_graph_rejects_weights_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"linear_graph: .*3.*2.*, but"):
        ag.linear_graph(3, 2, np.zeros(shape))


@pytest.mark.parametrize(("length", "labels"), [(-1, 2), (2, -1), (2**31, 1), (2**20, 2**20)])
def test_linear_graph_rejects_sizes_out_of_range(length, labels):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        ag.linear_graph(length, labels)


def test_scalar_graph_is_one_silent_arc():
    graph = ag.scalar_graph(1.5)
    assert (graph.num_nodes(), graph.num_arcs()) == (2, 1)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0], [1])
    assert (graph.ilabel(0), graph.olabel(0)) == (ag.epsilon, ag.epsilon)
    assert (graph.item(), graph.dtype, graph.calc_grad) == (1.5, np.float64, True)
    assert not ag.scalar_graph(1.5, False).calc_grad
    assert ag.scalar_graph(1.5, dtype="float32").dtype == np.float32


def test_chain_graph_is_one_path():
    graph = ag.chain_graph([4, 2], [1, ag.epsilon], [0.5, 0.25])
    assert graph.src_nodes().tolist() == [0, 1]
    assert graph.dst_nodes().tolist() == [1, 2]
    assert (graph.labels_to_list(), graph.labels_to_list(False)) == ([4, 2], [1, ag.epsilon])
    assert graph.weights_to_list() == [0.5, 0.25]
    assert not graph.calc_grad


def test_chain_graph_of_no_labels_accepts_the_empty_string():
    graph = ag.chain_graph([])
    assert (graph.num_nodes(), graph.num_arcs()) == (1, 0)
    assert graph.is_start(0)
    assert graph.is_accept(0)


def test_chain_graph_takes_arrays():
    graph = ag.chain_graph(np.array([1, 2, 3]), weights=np.array([1.0, 2.0, 3.0]))
    assert graph.labels_to_list() == [1, 2, 3]
    assert graph.dtype == np.float64
    assert ag.chain_graph([1]).dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([1, 2], [1]), "chain_graph: .*, but there are 1 and 2"),
        (([1, 2], None, [1.0]), "chain_graph: .*2.*, but .*1"),
        (([1, -4],), "chain_graph: .*, but .*-4"),
    ],
)
def test_chain_graph_rejects_bad_lengths_and_labels(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        ag.chain_graph(*arguments)
