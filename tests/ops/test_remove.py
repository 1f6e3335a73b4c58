"""remove: epsilon removal with exact scores and gradients."""

import math

import numpy as np
import pytest
from hypothesis import given
from spec import EMPTY, language
from strategies import convergent, graphs
from tools import build, weights

import arcgrad as ag

eps = ag.epsilon


@given(convergent())
def test_no_silent_arc_remains_and_one_node_is_added(graph):
    result = ag.remove(graph)
    assert not np.any((result.ilabels() == eps) & (result.olabels() == eps))
    assert result.num_nodes() <= graph.num_nodes() + 1


def test_the_weight_of_a_silent_arc_moves_to_the_arcs_after_it():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 3, 4, 0.25)])
    result = ag.remove(graph)
    assert language(result) == pytest.approx({((3,), (4,)): 0.75}, abs=1e-12)
    assert weights(ag.grad(ag.forward_score(result), graph)).tolist() == [1.0, 1.0]


def test_one_sided_epsilons_are_kept():
    graph = build(3, {0}, {2}, [(0, 1, eps, 5, 0.5), (1, 2, 3, eps, 0.25)])
    assert language(ag.remove(graph)) == pytest.approx({((3,), (5,)): 0.75}, abs=1e-12)
    assert ag.remove(graph).num_arcs() == 2


def test_a_weighted_empty_string_survives():
    graph = build(2, {0}, {1}, [(0, 1, eps, eps, 0.5), (0, 1, 3, 3, 0.0)])
    assert language(ag.remove(graph)) == pytest.approx({EMPTY: 0.5, ((3,), (3,)): 0.0}, abs=1e-12)


def test_parallel_silent_paths_add_up_or_compete():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.0), (0, 1, eps, eps, 0.0), (1, 2, 3, 3, 0.0)])
    assert language(ag.remove(graph)) == pytest.approx({((3,), (3,)): math.log(2)}, abs=1e-12)
    assert language(ag.remove(graph, semiring="tropical")) == pytest.approx(
        {((3,), (3,)): 0.0}, abs=1e-12
    )


def test_a_silent_loop_is_a_geometric_series():
    graph = build(2, {0}, {1}, [(0, 0, eps, eps, -1.0), (0, 1, 3, 3, 0.0)])
    expected = -math.log(1 - math.exp(-1.0))
    assert ag.forward_score(ag.remove(graph)).item() == pytest.approx(expected, abs=1e-12)
    assert ag.viterbi_score(ag.remove(graph, semiring="tropical")).item() == 0.0


@pytest.mark.parametrize(("semiring", "weight"), [("log", 0.0), ("log", 1.0), ("tropical", 1.0)])
def test_rejects_a_divergent_silent_cycle(semiring, weight):
    graph = build(2, {0}, {1}, [(0, 0, eps, eps, weight), (0, 1, 3, 3, 0.0)])
    with pytest.raises(ValueError, match=r"remove: .*, but .*nodes \{0\} has"):
        ag.remove(graph, semiring=semiring)


def test_a_label_is_removed_as_if_it_were_epsilon():
    graph = build(3, {0}, {2}, [(0, 1, 0, 1, 0.5), (1, 2, 0, 0, 0.25)])
    assert language(ag.remove(graph, 0, 1)) == pytest.approx({((0,), (0,)): 0.75}, abs=1e-12)
    assert language(ag.remove(graph, 0)) == pytest.approx({((0,), (1,)): 0.75}, abs=1e-12)


def test_epsilons_are_kept_when_another_label_is_removed():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 7, 7, 0.25)])
    assert language(ag.remove(graph, 7)) == pytest.approx({EMPTY: 0.75}, abs=1e-12)


@given(graphs())
def test_forward_and_viterbi_scores_do_not_change(graph):
    before, after = ag.forward_score(graph).item(), ag.forward_score(ag.remove(graph)).item()
    assert after == pytest.approx(before, abs=1e-9)
    best = ag.viterbi_score(graph).item()
    kept = ag.viterbi_score(ag.remove(graph, semiring="tropical")).item()
    assert kept == pytest.approx(best, abs=1e-9)


def test_takes_a_list_of_graphs():
    graph = build(3, {0}, {2}, [(0, 1, eps, eps, 0.5), (1, 2, 3, 4, 0.25)])
    for result in ag.remove([graph, graph], eps):
        assert language(result) == pytest.approx({((3,), (4,)): 0.75}, abs=1e-12)


def test_rejects_bad_labels_and_semirings():
    graph = build(1, {0}, {0}, [])
    with pytest.raises(ValueError, match=r"remove: .*label.*, but .*-2"):
        ag.remove(graph, -2)
    with pytest.raises(ValueError, match=r"remove: .*semiring.*, but .*real"):
        ag.remove(graph, semiring="real")


def test_rejects_nan_on_a_silent_arc():
    graph = build(2, {0}, {1}, [(0, 1, eps, eps, np.nan)])
    with pytest.raises(ValueError, match=r"remove: .*, but .*arc 0"):
        ag.remove(graph)


def test_epsilon_paths_to_dead_ends_add_no_arcs():
    # Also where such a node is the last with an epsilon arc.
    arcs = [(0, 1, 5, 5, 0.0), (1, 2, eps, eps, 0.0), (0, 3, 5, 5, 0.0), (3, 4, eps, eps, 0.0)]
    result = ag.remove(build(5, {0}, {2}, arcs))
    assert (result.num_nodes(), result.num_arcs()) == (2, 1)
    assert language(result) == {((5,), (5,)): 0.0}


@given(convergent())
def test_a_graph_without_dead_ends_keeps_none(graph):
    for given_graph in (graph, ag.connect(graph)):
        result = ag.remove(given_graph)
        assert ag.connect(result).num_nodes() == result.num_nodes()


def random_part(rng, num_nodes, num_arcs, silent):
    """An acyclic transducer with dead nodes and no silent arc from its start."""
    order = rng.permutation(num_nodes) if rng.random() < 0.5 else np.arange(num_nodes)
    ends = np.sort(rng.integers(0, num_nodes, (num_arcs, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    labels = rng.integers(0, 5, (len(ends), 2))
    labels[(rng.random(len(ends)) < silent) & (ends[:, 0] > 0)] = eps
    return ag.Graph.from_arrays(
        *(order[column] for column in ends.T),
        *labels.T,
        rng.normal(size=len(ends)),
        start=order[:1],
        accept=order[rng.random(num_nodes) < 0.2],
        num_nodes=num_nodes,
    )


def fan(num_in, num_out):
    """All arcs enter one node in the middle, which silent arcs join to as many nodes."""
    last = num_out + 2
    arcs = [(0, 1, k, k, 0.1 * k) for k in range(num_in)]
    arcs += [(1, 2 + k, eps, eps, -0.1 * k) for k in range(num_out)]
    arcs += [(2 + k, last, 7, 7, 0.0) for k in range(num_out)]
    return build(last + 1, {0}, {last}, arcs)


@pytest.mark.parametrize(
    ("count", "num_nodes", "silent"),
    [(40, 70, 0.3), (60, 500, 0.05), (300, 1000, 0.02)],
)
def test_removal_in_a_large_union_equals_removal_in_its_parts(count, num_nodes, silent):
    rng = np.random.default_rng(count)
    parts = [random_part(rng, num_nodes, 5 * num_nodes, silent) for _ in range(count)]
    parts.insert(count // 2, fan(300, 400))
    whole = ag.remove(ag.union(parts))
    expected = ag.union(ag.remove(parts))
    for column, expected_column in zip(whole.arcs()[:4], expected.arcs()[:4], strict=True):
        np.testing.assert_array_equal(column, expected_column)
    assert (list(whole.start()), list(whole.accept())) == (
        list(expected.start()),
        list(expected.accept()),
    )
    np.testing.assert_allclose(weights(whole), weights(expected), rtol=1e-5, atol=1e-5)
    seed = whole.detach()
    seed.set_weights(rng.normal(size=whole.num_arcs()))
    grads = []
    for result in (whole, expected):
        ag.backward(result, seed)
        grads.append(np.concatenate([weights(part.grad()) for part in parts]))
        for part in parts:
            part.zero_grad()
    np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-4)
