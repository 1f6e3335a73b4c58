"""Algebraic identities between ops, on random graphs."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from spec import EMPTY, language, paths, score, strings
from strategies import acceptors, closable, convergent, emissions, graphs
from tools import build, snapshot, weights, with_weights

import arcgrad as ag


def assert_equal_languages(first, second, read=language):
    assert read(first) == pytest.approx(read(second), abs=1e-9)


def logadd(*values):
    return float(np.logaddexp.reduce(values))


def close_to(value):
    return pytest.approx(value, abs=1e-9)


@given(graphs(), graphs())
def test_union_commutes(a, b):
    assert_equal_languages(ag.union([a, b]), ag.union([b, a]))


@given(graphs(), graphs(), graphs())
def test_union_associates(a, b, c):
    expected = ag.union([a, b, c])
    assert snapshot(ag.union([ag.union([a, b]), c])) == snapshot(expected)
    assert snapshot(ag.union([a, ag.union([b, c])])) == snapshot(expected)


@given(graphs(max_arcs=4), graphs(max_arcs=4), graphs(max_arcs=4))
def test_concat_associates(a, b, c):
    expected = ag.concat([a, b, c])
    assert_equal_languages(ag.concat([ag.concat([a, b]), c]), expected)
    assert_equal_languages(ag.concat([a, ag.concat([b, c])]), expected)


@given(graphs(max_arcs=5), graphs(max_arcs=5), graphs(max_arcs=5))
def test_concat_distributes_over_union(a, b, c):
    left = ag.concat([a, ag.union([b, c])])
    assert_equal_languages(left, ag.union([ag.concat([a, b]), ag.concat([a, c])]))
    right = ag.concat([ag.union([b, c]), a])
    assert_equal_languages(right, ag.union([ag.concat([b, a]), ag.concat([c, a])]))


@given(graphs(max_arcs=5), graphs(max_arcs=5), graphs(max_arcs=5))
def test_compose_distributes_over_union(a, b, c):
    left = ag.compose(a, ag.union([b, c]))
    assert_equal_languages(left, ag.union([ag.compose(a, b), ag.compose(a, c)]))


@given(graphs(max_arcs=5), graphs(max_arcs=5), graphs(max_arcs=5))
def test_compose_associates(a, b, c):
    assert_equal_languages(ag.compose(ag.compose(a, b), c), ag.compose(a, ag.compose(b, c)))


@given(acceptors(), acceptors())
def test_intersect_commutes(a, b):
    assert_equal_languages(ag.intersect(a, b), ag.intersect(b, a))


@given(acceptors(), acceptors(), emissions())
def test_intersect_associates_with_emissions(a, b, e):
    expected = ag.intersect(ag.intersect(a, b), e)
    assert_equal_languages(ag.intersect(a, ag.intersect(b, e)), expected)


@given(graphs(), graphs())
def test_inverting_a_composition_swaps_its_factors(a, b):
    expected = ag.invert(ag.compose(a, b))
    assert_equal_languages(ag.compose(ag.invert(b), ag.invert(a)), expected)


@given(graphs(), graphs())
def test_projections_of_a_composition(a, b):
    product = ag.compose(a, b)
    both = ag.project_input(ag.compose(a, ag.project_input(b)))
    assert_equal_languages(ag.project_input(product), both)
    both = ag.project_output(ag.compose(ag.project_output(a), b))
    assert_equal_languages(ag.project_output(product), both)


@given(graphs(), graphs())
def test_reversing_a_concatenation_swaps_its_factors(a, b):
    expected = ag.reverse(ag.concat([a, b]))
    assert_equal_languages(ag.concat([ag.reverse(b), ag.reverse(a)]), expected)


@given(graphs(), graphs())
def test_reversing_a_composition_composes_the_reversals(a, b):
    expected = ag.reverse(ag.compose(a, b))
    assert_equal_languages(ag.compose(ag.reverse(a), ag.reverse(b)), expected)


@given(convergent())
def test_reversing_or_inverting_twice_changes_nothing(a):
    assert ag.equal(ag.reverse(ag.reverse(a)), a)
    assert snapshot(ag.invert(ag.invert(a))) == snapshot(a)


@given(closable())
def test_a_graph_before_or_after_its_closure_is_one_or_more(a):
    star = ag.closure(a)
    before, after = ag.concat([a, star]), ag.concat([star, a])
    assert_equal_languages(before, after, strings)
    empty = build(1, {0}, {0}, [])
    assert_equal_languages(ag.union([empty, before]), star, strings)


@given(closable(epsilon=False))
def test_the_closure_of_a_union_splits(a):
    # (a + b)* = a* (b a*)*, with b = a of another label.
    b = copy.copy(ag.invert(a))
    if ag.forward_score(ag.union([a, b])).item() < math.log(0.9):
        left = ag.closure(ag.union([a, b]))
        right = ag.concat([ag.closure(a), ag.closure(ag.concat([b, ag.closure(a)]))])
        if ag.forward_score(ag.concat([b, ag.closure(a)])).item() < math.log(0.9):
            assert_equal_languages(left, right, strings)


@given(graphs(), graphs())
def test_the_forward_score_of_a_union_is_the_log_sum(a, b):
    expected = logadd(ag.forward_score(a).item(), ag.forward_score(b).item())
    assert ag.forward_score(ag.union([a, b])).item() == close_to(expected)


@given(graphs(), graphs())
def test_the_viterbi_score_of_a_union_is_the_maximum(a, b):
    expected = max(ag.viterbi_score(a).item(), ag.viterbi_score(b).item())
    assert ag.viterbi_score(ag.union([a, b])).item() == expected


@given(graphs(), graphs())
def test_scores_of_a_concatenation_add(a, b):
    joined = ag.concat([a, b])
    for op in (ag.forward_score, ag.viterbi_score):
        expected = op(a).item() + op(b).item()
        assert op(joined).item() == close_to(expected)


@given(closable())
def test_the_forward_score_of_a_closure_is_a_geometric_series(a):
    expected = -math.log1p(-math.exp(ag.forward_score(a).item()))
    assert ag.forward_score(ag.closure(a)).item() == close_to(expected)


@given(convergent())
def test_scores_ignore_direction_and_labels(a):
    for op in (ag.forward_score, ag.viterbi_score):
        expected = op(a).item()
        for same in (ag.reverse, ag.invert, ag.project_input, ag.project_output, ag.connect):
            assert op(same(a)).item() == close_to(expected)


@given(convergent())
def test_viterbi_is_at_most_forward(a):
    assert ag.viterbi_score(a).item() <= ag.forward_score(a).item() + 1e-12


@given(graphs())
def test_forward_is_at_most_viterbi_plus_the_log_of_the_number_of_paths(a):
    count = len(paths(a))
    if count:
        bound = ag.viterbi_score(a).item() + math.log(count)
        assert ag.forward_score(a).item() <= bound + 1e-12


@given(graphs())
def test_the_viterbi_path_has_the_viterbi_score(a):
    best = ag.viterbi_path(a)
    expected = ag.viterbi_score(a).item()
    assert ag.forward_score(best).item() == close_to(expected)


@given(graphs())
def test_posteriors_sum_to_the_expected_path_length(a):
    log_sum = ag.forward_score(a).item()
    lengths = [
        len(path) * math.exp(score(path) - log_sum) for path in paths(a) if log_sum > -math.inf
    ]
    assert weights(ag.arc_posteriors(a)).sum() == pytest.approx(sum(lengths), abs=1e-9)


@given(graphs())
def test_posteriors_are_conserved_at_every_node(a):
    # Incoming and outgoing posteriors are equal, except for paths that start or end at the node.
    posteriors = ag.arc_posteriors(a).weights_to_numpy()
    net = np.zeros(a.num_nodes())
    np.add.at(net, a.src_nodes(), posteriors)
    np.add.at(net, a.dst_nodes(), -posteriors)
    inside = [n for n in range(a.num_nodes()) if not a.is_start(n) and not a.is_accept(n)]
    assert net[inside] == pytest.approx(np.zeros(len(inside)), abs=1e-9)


@given(convergent())
def test_forward_and_backward_distances_add_up_to_the_score(a):
    ahead, behind = ag.shortest_distance(a), ag.shortest_distance(a, reverse=True)
    expected = ag.forward_score(a).item()
    accepted = weights(ahead)[a.accept()] + a.accept_weights()
    started = weights(behind)[a.start()] + a.start_weights()
    assert logadd(*accepted, -math.inf) == close_to(expected)
    assert logadd(*started, -math.inf) == close_to(expected)


@given(graphs(impossible=False))
def test_arithmetic_identities(a):
    assert ag.equal(ag.negate(ag.negate(a)), a)
    assert ag.equal(ag.subtract(a, a), ag.scale(a, 0.0))
    assert ag.equal(ag.add(a, a), ag.scale(a, 2.0))
    assert ag.equal(ag.subtract(a, ag.negate(a)), ag.add(a, a))


@given(graphs())
def test_removing_epsilons_twice_changes_nothing_more(a):
    once = ag.remove(a)
    assert_equal_languages(ag.remove(once), once)
    assert ag.remove(once).num_arcs() == once.num_arcs()


@given(graphs(), graphs())
def test_removing_epsilons_before_or_after_composition(a, b):
    expected = ag.remove(ag.compose(a, b))
    assert_equal_languages(ag.compose(ag.remove(a), ag.remove(b)), expected)


@given(graphs())
def test_connect_is_idempotent(a):
    once = ag.connect(a)
    assert snapshot(ag.connect(once)) == snapshot(once)


@given(acceptors(epsilon=False))
def test_all_strings_are_the_identity_of_intersection(a):
    everything = build(1, {0}, {0}, [(0, 0, c, c, 0.0) for c in (0, 1)])
    assert_equal_languages(ag.intersect(a, everything), a)
    assert_equal_languages(ag.intersect(everything, a), a)


@given(graphs())
def test_the_empty_string_is_the_identity_of_concatenation(a):
    empty = build(1, {0}, {0}, [])
    assert language(empty) == {EMPTY: 0.0}
    assert_equal_languages(ag.concat([a, empty]), a)
    assert_equal_languages(ag.concat([empty, a]), a)


@given(graphs())
def test_the_empty_graph_is_zero(a):
    nothing = ag.Graph(dtype="float64")
    assert_equal_languages(ag.union([a, nothing]), a)
    assert language(ag.concat([a, nothing])) == language(ag.compose(a, nothing)) == {}


@given(graphs())
def test_the_hessian_of_a_score_is_the_covariance_of_arc_counts(a):
    log_sum = ag.forward_score(a).item()
    if log_sum == -math.inf or a.num_weights() == 0:
        return
    counts = np.zeros((len(paths(a)), a.num_weights()))
    for row, path in zip(counts, paths(a), strict=True):
        row[[arc.id for arc in path]] = 1.0
    probability = np.exp([score(path) - log_sum for path in paths(a)])
    mean = probability @ counts
    covariance = counts.T @ (probability[:, None] * counts) - np.outer(mean, mean)
    for row, vector in zip(covariance, np.eye(a.num_weights()), strict=True):
        column = ag.hvp(ag.forward_score(a), a, with_weights(a, vector))
        assert weights(column) == pytest.approx(row, abs=1e-9)
