"""expected, entropy, kl_divergence: numbers of the distribution over paths."""

import math

import numpy as np
import pytest
from gradients import leaves
from hypothesis import given
from spec import has_path, paths, score
from strategies import graphs
from tools import build, weights, with_weights

import arcgrad as ag

LOOP = [(0, 0, 0, 0, math.log(0.75)), (0, 1, 1, 1, math.log(0.25))]


def geometric(stay):
    """Any number of labels 0, each with probability `stay`, then a label 1."""
    return build(2, {0}, {1}, [(0, 0, 0, 0, math.log(stay)), (0, 1, 1, 1, math.log(1.0 - stay))])


def fork(*scores, dtype="float64"):
    """A choice between the labels 0, 1, ... with these scores."""
    return build(2, {0}, {1}, [(0, 1, k, k, w) for k, w in enumerate(scores)], dtype=dtype)


def test_ones_count_the_arcs_of_a_path():
    graph = build(2, {0}, {1}, LOOP)
    assert ag.expected(graph, np.ones(2)).item() == pytest.approx(4.0, abs=1e-12)
    assert ag.expected([graph] * 2, [[1.0, 0.0], [0.0, 1.0]])[0].item() == pytest.approx(3.0)


def test_costs_may_be_a_product_with_emissions_and_an_array():
    emissions = ag.linear_graph(3, 2, np.arange(6.0).reshape(3, 2), dtype="float64")
    product = ag.intersect(ag.closure(fork(0.5, -0.5)), emissions)
    costs = np.cos(np.arange(product.num_arcs()))
    expected = math.fsum(costs * weights(ag.arc_posteriors(product)))
    assert ag.expected(product, costs).item() == pytest.approx(expected, abs=1e-12)


def test_costs_of_impossible_arcs_are_not_read():
    graph = fork(0.0, -math.inf)
    for cost in (math.nan, math.inf, -math.inf):
        value = ag.expected(graph, [2.0, cost])
        assert value.item() == 2.0
        assert weights(ag.grad(value, graph)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_costs_are_finite(cost):
    with pytest.raises(ValueError, match=r"expected: costs must be finite, but that of arc 1 is"):
        ag.expected(fork(0.0, 0.0), [1.0, cost])


def test_costs_have_the_structure_of_the_graph():
    with pytest.raises(ValueError, match=r"expected: both graphs must have the same structure"):
        ag.expected(fork(0.0), fork(0.0, 0.0))
    with pytest.raises(ValueError, match=r"expected: costs must have one entry per arc, 2 .* 3"):
        ag.expected(fork(0.0, 0.0), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"expected: there must be costs for each graph, 2 .* 1"):
        ag.expected([fork(0.0)] * 2, [fork(0.0)])


@pytest.mark.parametrize("op", [ag.entropy, lambda g: ag.expected(g, g)])
def test_a_distribution_needs_a_path(op):
    for graph in (ag.Graph(), fork(-math.inf), build(2, {0}, {1}, [])):
        with pytest.raises(ValueError, match=r"must accept a path, but it accepts none"):
            op(graph)


def test_a_divergent_cycle_is_refused():
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, 0.5), (0, 1, 1, 1, 0.0)])
    with pytest.raises(ValueError, match=r"^entropy: "):
        ag.entropy(graph)


def test_float32_weights_give_a_score_in_float64():
    value = ag.entropy(fork(0.0, 0.0, dtype="float32"))
    assert value.dtype == np.float64
    assert value.item() == pytest.approx(math.log(2.0), abs=1e-15)


def test_the_entropy_of_a_geometric_distribution():
    stay = 0.75
    bits = -(stay * math.log(stay) + (1 - stay) * math.log(1 - stay)) / (1 - stay)
    assert ag.entropy(geometric(stay)).item() == pytest.approx(bits, abs=1e-12)


def test_a_certain_path_has_no_entropy():
    assert ag.entropy(ag.chain_graph([1, 2], weights=[-7.0, 3.0])).item() == 0.0


@given(graphs().filter(has_path))
def test_the_mean_of_scores_estimates_their_expectation(graph):
    graph = leaves([graph])[0]
    # The score function estimator over all paths, instead of samples, has no noise.
    log_sum = ag.forward_score(graph)
    surrogate = np.zeros(len(weights(graph)))
    for path in paths(graph):
        if score(path) == -math.inf:
            continue
        probability = math.exp(score(path) - log_sum.item())
        taken = np.bincount([arc.id for arc in path], minlength=len(surrogate))
        surrogate += probability * score(path) * (taken - weights(ag.grad(log_sum, graph)))
    costs = graph.detach()
    actual = weights(ag.grad(ag.expected(graph, costs), graph))
    assert actual == pytest.approx(surrogate, abs=1e-9)


def test_samples_have_scores_with_gradients():
    graph = fork(0.5, -0.25, 0.0)
    log_sum = ag.forward_score(graph)
    probability = np.exp(weights(graph) - log_sum.item())
    reward = np.array([1.0, 2.0, 4.0])
    drawn = ag.sample(graph, 4000, seed=5)
    estimate = np.zeros(3)
    for path in drawn:
        log_prob = ag.subtract(ag.forward_score(path), log_sum)
        gain = reward[path.labels_to_list()[0]]
        estimate += gain * weights(ag.grad(log_prob, graph)) / len(drawn)
    exact = weights(ag.grad(ag.expected(graph, reward), graph))
    # Five standard deviations of a term, which is at most the largest reward.
    assert estimate == pytest.approx(exact, abs=5 * 4.0 / math.sqrt(len(drawn)))
    assert exact == pytest.approx(probability * (reward - probability @ reward), abs=1e-12)


def test_a_divergence_of_geometric_distributions():
    p, q = 0.75, 0.5
    step = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    found = ag.kl_divergence(geometric(p), geometric(q)).item()
    assert found == pytest.approx(step / (1 - p), abs=1e-12)


def test_a_divergence_needs_no_normalized_graphs():
    p, q = fork(0.5, 1.0, 0.0), fork(0.0, 0.25, -1.0)
    moved = ag.concat([with_weights(p, weights(p) + 3.0), ag.chain_graph([9], weights=[1.0])])
    other = ag.concat([with_weights(q, weights(q) - 2.0), ag.chain_graph([9])])
    found = ag.kl_divergence(ag.remove(moved), ag.remove(other)).item()
    assert found == pytest.approx(ag.kl_divergence(p, q).item(), abs=1e-6)
    assert ag.kl_divergence(p, p).item() == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    "q",
    [
        fork(0.0),
        fork(0.0, -math.inf),
        build(3, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 2, 1, 1, 0.0)]),
        build(1, set(), set(), []),
    ],
    ids=["missing", "impossible", "not accepted", "no start"],
)
def test_a_string_that_q_lacks_makes_the_divergence_infinite(q):
    p = fork(0.0, 1.0)
    divergence = ag.kl_divergence(p, q)
    assert divergence.item() == math.inf
    for graph, gradient in zip((p, q), ag.grad(divergence, [p, q]), strict=True):
        assert weights(gradient).tolist() == [0.0] * graph.num_arcs()


def test_arcs_of_p_on_no_path_need_no_arc_of_q():
    arcs = [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, -math.inf), (0, 2, 2, 2, 0.0)]
    assert ag.kl_divergence(build(3, {0}, {1}, arcs), fork(3.0)).item() == 0.0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (build(2, {0}, {1}, [(0, 1, 0, 1, 0.0)]), "acceptors"),
        (build(2, {0}, {1}, [(0, 1, 0, 0, 0.0)] * 2), "deterministic"),
        (build(2, {0}, {1}, [(0, 1, -1, -1, 0.0)]), "deterministic"),
        (build(2, {0, 1}, {1}, [(0, 1, 0, 0, 0.0)]), "deterministic"),
    ],
)
def test_a_divergence_refuses_graphs_with_several_paths_of_a_string(bad, words):
    good = fork(0.0, 0.0)
    for first, second, name in ((bad, good, "the first"), (good, bad, "the second")):
        with pytest.raises(ValueError, match=rf"^kl_divergence: .*{words}.*, but {name} "):
            ag.kl_divergence(first, second)


def test_samples_of_one_seed_are_a_stream():
    graph = ag.linear_graph(10, 4)
    several = [p.labels_to_list() for p in ag.sample(graph, 5, seed=3)]
    assert [p.labels_to_list() for p in ag.sample(graph, 5, seed=3)] == several
    assert ag.sample(graph, seed=3).labels_to_list() == several[0]
    assert len(set(map(tuple, several))) > 1
    lists = ag.sample([graph, graph], 5, seed=3)
    assert [p.labels_to_list() for p in lists[0]] == several
    assert [p.labels_to_list() for p in lists[1]] != several
    assert ag.sample(graph, 0) == []


def ended(start, accept):
    """A choice between the labels 0 and 1, with node weights."""
    graph = fork(0.5, -0.25)
    graph.set_start_weight(0, start)
    graph.set_accept_weight(1, accept)
    return graph


def test_node_weights_count():
    p, q = ended(0.5, 1.0), ended(-3.0, 0.25)
    assert ag.kl_divergence(p, q).item() == pytest.approx(0.0, abs=1e-15)
    assert ag.kl_divergence(p, fork(0.5, -0.25)).item() == pytest.approx(0.0, abs=1e-15)
    assert ag.entropy(p).item() == pytest.approx(ag.entropy(fork(0.5, -0.25)).item())
    assert ag.expected(p, np.ones(2)).item() == pytest.approx(1.0)
    for impossible in (ended(-math.inf, 0.0), ended(0.0, -math.inf)):
        assert ag.kl_divergence(p, impossible).item() == math.inf


def test_a_divergence_compares_symbols():
    first, second = (ag.SymbolTable({"a": i, "b": 1 - i}) for i in (0, 1))
    p, q = (ag.Graph(isymbols=symbols) for symbols in (first, second))
    for graph in (p, q):
        graph.add_node(start=True, accept=True)
    with pytest.raises(ValueError, match=r"^kl_divergence: the symbols of labels"):
        ag.kl_divergence(p, q)
    assert ag.kl_divergence(p, p).item() == 0.0
