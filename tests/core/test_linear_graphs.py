"""Batches of dense linear graphs."""

import numpy as np
import pytest

import arcgrad as ag


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_graphs_are_linear_graphs(copy, dtype):
    array = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(dtype)
    graphs = ag.linear_graphs(array, copy=copy)
    assert len(graphs) == 4
    for graph, part in zip(graphs, array, strict=True):
        assert ag.equal(graph, ag.linear_graph(5, 3, part))
        assert graph.dtype == np.dtype(dtype)
        assert graph.calc_grad
    assert not any(g.calc_grad for g in ag.linear_graphs(array, calc_grad=False, copy=copy))


@pytest.mark.parametrize("copy", [True, False])
def test_linear_graphs_of_any_strides_and_lengths(copy):
    base = np.random.default_rng(0).normal(size=(7, 4, 6)).astype(np.float32)
    array = base.transpose(1, 0, 2)[::-1, :, ::2]  # [4, 7, 3]
    graphs = ag.linear_graphs(array, [7, 0, 3, 1], copy=copy)
    for graph, part, length in zip(graphs, array, (7, 0, 3, 1), strict=True):
        assert ag.equal(graph, ag.linear_graph(length, 3, part[:length]))
    scores = ag.forward_score(graphs)
    ag.backward(scores)
    for graph, part, length in zip(graphs, array, (7, 0, 3, 1), strict=True):
        exp = np.exp(part[:length].astype(np.float64))
        np.testing.assert_allclose(
            graph.grad().weights_to_numpy().reshape(length, 3),
            exp / exp.sum(1, keepdims=True),
            rtol=1e-5,
        )


def test_linear_graphs_copy_or_borrow():
    array = np.zeros((2, 3, 4), np.float32)
    copied, borrowed = ag.linear_graphs(array), ag.linear_graphs(array, copy=False)
    assert np.shares_memory(borrowed[1].weights_view(), array)
    array[:] = 1
    assert copied[0].weights_to_list() == [0.0] * 12
    copied[0].set_weights(np.ones(12))
    assert copied[1].weights_to_list() == [0.0] * 12


def test_linear_graphs_of_lists_and_integers():
    assert ag.linear_graphs([[[1, 2]], [[3, 4]]])[1].weights_to_list() == [3.0, 4.0]
    assert ag.linear_graphs([[[1.0, 2.0]]])[0].dtype == np.float32
    assert ag.linear_graphs(np.ones((1, 2, 3), np.int64), dtype="float64")[0].dtype == np.float64


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
@pytest.mark.parametrize("copy", [True, False])
def test_linear_graphs_of_empty_batches(shape, copy):
    graphs = ag.linear_graphs(np.zeros(shape, np.float32), copy=copy)
    assert [g.num_nodes() for g in graphs] == [shape[1] + 1] * shape[0]
    assert all(g.num_arcs() == 0 for g in graphs)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"weights": np.zeros((3, 4))}, r"shape \(examples, frames, labels\), but .* \(3, 4\)"),
        ({"weights": np.zeros((2, 3, 4)), "lengths": [3]}, "one length per example, 2 in all, but"),
        ({"weights": np.zeros((2, 3, 4)), "lengths": [3, 4]}, "between 0 and 3.* example 1 is 4"),
        ({"weights": np.zeros((2, 3, 4)), "lengths": [-1, 3]}, "example 0 is -1"),
        ({"weights": np.zeros((2, 3, 4), int), "copy": False}, "float32 or float64, but .* int64"),
        ({"weights": np.zeros((2, 3, 4)), "dtype": "float32", "copy": False}, "keep their dtype"),
    ],
)
def test_bad_batches_of_linear_graphs(arguments, rule):
    with pytest.raises(ValueError, match=f"^linear_graphs: .*{rule}"):
        ag.linear_graphs(**arguments)


@pytest.mark.parametrize("dtype", ["longdouble", "float16", ">f4", ">f8", "int8"])
def test_linear_graphs_of_other_numbers_are_copied(dtype):
    array = np.arange(6).reshape(1, 2, 3).astype(dtype)
    assert ag.linear_graphs(array)[0].weights_to_list() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(ValueError, match=r"^linear_graphs: .*must be float32 or float64, but"):
        ag.linear_graphs(array, copy=False)


def test_linear_graphs_need_numbers():
    with pytest.raises(TypeError, match=r"^linear_graphs: "):
        ag.linear_graphs(np.full((1, 1, 1), "a"))
    with pytest.raises(TypeError, match=r"^linear_graphs: "):
        ag.linear_graphs([[[1], [1, 2]]])
