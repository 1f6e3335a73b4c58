"""negate, add, subtract and scale: whole graphs, and scalar graphs as numbers."""

import math

import numpy as np
import pytest
from tools import acceptor, build, weights

import arcgrad as ag

arcs = [(0, 1, 0, 1, 0.5), (0, 2, 1, 0, -1.25), (1, 2, 2, 2, 3.0)]


@pytest.fixture
def graph():
    return build(3, {0}, {2}, arcs)


def test_every_arc_is_negated(graph):
    assert ag.negate(graph).weights_to_list() == [-0.5, 1.25, -3.0]


def test_whole_graphs_are_added_and_subtracted(graph):
    assert ag.add(graph, graph).weights_to_list() == [1.0, -2.5, 6.0]
    assert ag.subtract(graph, graph).weights_to_list() == [0.0, 0.0, 0.0]


def test_scale_multiplies_every_weight(graph):
    assert ag.scale(graph, 2.0).weights_to_list() == [1.0, -2.5, 6.0]
    assert weights(ag.grad(ag.scale(graph, 2.0), graph)).tolist() == [2.0] * 3


def test_the_result_shares_the_structure(graph):
    for result in (ag.negate(graph), ag.add(graph, graph), ag.scale(graph, 3)):
        assert result.labels_to_list() == graph.labels_to_list()
        assert result.labels_to_list(False) == graph.labels_to_list(False)
        assert result.accept().tolist() == [2]


@pytest.mark.parametrize("op", [ag.add, ag.subtract])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"arcs": arcs[:2]}, "arcs"),
        ({"num_nodes": 4}, "nodes"),
        ({"start": {1}}, "start"),
        ({"accept": {1, 2}}, "accept"),
        ({"arcs": [*arcs[:2], (1, 2, 2, 1, 3.0)]}, "arc 2"),
        ({"arcs": [(0, 2, 0, 1, 0.5), *arcs[1:]]}, "arc 0"),
    ],
)
def test_another_structure_is_rejected(op, change, problem, graph):
    shape = {"num_nodes": 3, "start": {0}, "accept": {2}, "arcs": arcs} | change
    with pytest.raises(ValueError, match=rf"{op.__name__}: .*structure.*, but .*{problem}"):
        op(graph, build(**shape))


def test_scores_of_float32_graphs_keep_their_digits():
    # 1e8 + 1 has no float32, so Z - A would be 0 in float32.
    large, small = acceptor((0, 1), weight=0.0, dtype="float32"), acceptor((0,), dtype="float32")
    large.set_weights([1e8, 1.0])
    small.set_weights([1e8])
    z, a = ag.forward_score(large), ag.forward_score(small)
    assert ag.subtract(z, a).item() == 1.0
    for result in (ag.add(z, a), ag.subtract(z, a), ag.negate(z)):
        assert result.dtype == np.float64


def test_scalar_graphs_are_float64():
    large, one = ag.scalar_graph(1e8, dtype="float32"), ag.scalar_graph(1.0, dtype="float32")
    assert ag.add(large, one).item() == 1e8 + 1.0
    assert ag.subtract(ag.add(large, one), large).item() == 1.0
    for result in (ag.add(large, one), ag.negate(one), ag.scale(one, 0.1)):
        assert result.dtype == np.float64
        (gradient,) = ag.grad(result, [one])
        assert gradient.dtype == np.float32
    assert ag.scale(one, 0.1).item() == 0.1
    for length in (1, 2):
        assert ag.negate(acceptor((0,) * length, dtype="float32")).dtype == np.float32


def test_minus_infinity_can_be_negated_and_stored():
    graph = ag.negate(ag.scalar_graph(-math.inf))
    assert graph.item() == math.inf
    with pytest.raises(ValueError, match=r"forward_score: .*arc 0"):
        ag.forward_score(graph)


def test_dtypes_promote_and_gradients_have_the_dtype_of_their_input():
    narrow = build(2, {0}, {1}, [(0, 1, 0, 0, 0.5)], dtype="float32")
    wide = build(2, {0}, {1}, [(0, 1, 0, 0, 0.25)])
    total = ag.add(narrow, wide)
    assert total.dtype == np.float64
    first, second = ag.grad(total, [narrow, wide])
    assert (first.dtype, second.dtype) == (np.float32, np.float64)


def test_scale_rejects_arguments_that_are_not_numbers(graph):
    with pytest.raises(TypeError):
        ag.scale(graph, "2")
    with pytest.raises(TypeError):
        ag.scale(graph, graph)
