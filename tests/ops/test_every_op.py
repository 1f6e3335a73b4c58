"""The laws that hold for every op: what `spec.OPS` says, on random graphs.

One test per row of `spec.OPS` draws graphs and checks all laws on them. A failure names its law.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, leaves
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import (
    OPS,
    TROPICAL,
    Op,
    all_distances,
    language,
    level,
    star,
    strings,
    table,
    times,
    total,
)
from strategies import closable, convergent, graphs, spectral_radius, without_gain
from tools import set_weights, snapshot, weights, with_dtype, with_weights

import arcgrad as ag


class Law(NamedTuple):
    """`check(op, batch)` holds on any batch of arguments of the ops for which `applies(op)`.

    A batch is a list of tuples of arguments. Most laws concern one call and take its first element.
    """

    name: str
    applies: Callable[[Op], bool]
    check: Callable[[Op, list[tuple]], None]


LAWS: list[Law] = []
POOL = ThreadPoolExecutor(4)


def holds(applies=lambda op: True, *, of_batches=False):
    """Add a function of an op and its arguments (or of a whole batch) to the laws."""

    def add(check):
        on_batch = check if of_batches else lambda op, batch: check(op, batch[0])
        LAWS.append(Law(check.__name__, applies, on_batch))
        return check

    return add


def differentiable(op):
    return op.gradient


def twice_differentiable(op):
    return op.second_order


def with_lists(op):
    return op.batch


def with_slots(op):
    several_inputs = {
        *("add", "subtract", "compose", "intersect", "union", "concat"),
        *("expected", "kl_divergence"),
    }
    return op.name in several_inputs and op.slots


def assert_same(actual, expected, tolerance):
    """Equal structure, and numbers within the tolerance relative to their size."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key], tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), f"{actual} is not {expected}"
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, tolerance)
    elif isinstance(expected, float):
        # A loss whose two scores are both -inf is undefined.
        close = math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance) or (
            math.isnan(actual) and math.isnan(expected)
        )
        assert close, f"{actual} is not {expected}"
    else:
        assert actual == expected


def assert_meaning(op: Op, arguments):
    actual, expected = op.read(op.call(*arguments)), op.meaning(*map(op.view, arguments))
    if op.one_of:
        assert actual in expected
    else:
        assert_same(actual, expected, 1e-9)


@holds()
def meaning(op, arguments):
    assert_meaning(op, arguments)


@holds(
    lambda op: (
        "cyclic" in op.variant and op.inputs is not level and op.name not in {"closure", "sample"}
    )
)
def meaning_close_to_divergence(op, arguments):
    radii = list(map(spectral_radius, arguments))
    lifts = [math.log(0.999 / radius) if radius > 0 else 0.0 for radius in radii]
    lifted = [
        with_weights(graph, weights(graph) + lift) if lift else graph
        for graph, lift in zip(arguments, lifts, strict=True)
    ]
    assert_meaning(op, lifted)


@holds(with_slots)
def meaning_with_the_same_graph_in_every_slot(op, arguments):
    assert_meaning(op, [arguments[0]] * len(arguments))


@holds(differentiable)
def gradient(op, arguments):
    assert_gradient(op.call, *arguments)


@holds(twice_differentiable)
def second_order(op, arguments):
    assert_second_order(op.call, *arguments)


@holds(with_slots)
def gradient_with_the_same_graph_in_every_slot(op, arguments):
    assert_gradient(lambda graph: op.call(*[graph] * len(arguments)), arguments[0])


@holds(with_slots)
def second_order_with_the_same_graph_in_every_slot(op, arguments):
    assert_second_order(lambda graph: op.call(*[graph] * len(arguments)), arguments[0])


@holds(differentiable)
def inputs_are_unchanged(op, arguments):
    before = list(map(snapshot, arguments))
    output = op.call(*arguments)
    ag.backward(output)
    assert list(map(snapshot, arguments)) == before


@holds(differentiable)
def the_same_call_gives_the_same_bits(op, arguments):
    first = snapshot(op.call(*arguments))
    assert snapshot(op.call(*arguments)) == first
    assert snapshot(op.call(*map(copy.deepcopy, arguments))) == first


@holds(differentiable)
def backward_stores_what_grad_returns(op, arguments):
    inputs = leaves(arguments)
    expected = ag.grad(op.call(*inputs), inputs)
    ag.backward(op.call(*inputs))
    for graph, gradient in zip(inputs, expected, strict=True):
        assert weights(graph.grad()).tolist() == weights(gradient).tolist()


@holds(differentiable)
def no_grad_changes_no_value(op, arguments):
    expected = op.call(*arguments)
    with ag.no_grad():
        actual = op.call(*arguments)
    assert snapshot(actual) == snapshot(expected)
    assert expected.calc_grad
    assert not actual.calc_grad


@holds(differentiable)
def float32_is_close_to_float64(op, arguments):
    narrow = [with_dtype(graph, "float32") for graph in arguments]
    actual = op.read(op.call(*narrow))
    assert_same(actual, op.read(op.call(*arguments)), 2e-5)


@holds(differentiable)
def many_threads_may_share_a_fresh_graph(op, arguments):
    expected = snapshot(op.call(*arguments))
    fresh = list(map(copy.deepcopy, arguments))
    results = list(POOL.map(lambda _: op.call(*fresh), range(8)))
    assert [snapshot(graph) for graph in results] == [expected] * 8


@holds(lambda op: op.name in {"forward_score", "viterbi_score"} and "product" not in op.variant)
def a_score_without_a_path_has_no_gradient(op, arguments):
    dead = leaves(arguments)[0]
    set_weights(dead, np.full(len(weights(dead)), -math.inf))
    score = op.call(dead)
    # Only empty paths without node weights are left: one for each start that accepts.
    empty = len(set(dead.start().tolist()) & set(dead.accept().tolist()))
    empty *= not dead.has_node_weights()
    log_sum = math.log(empty) if empty else -math.inf
    expected = min(log_sum, 0.0) if op.name == "viterbi_score" else log_sum
    assert score.item() == pytest.approx(expected, abs=1e-15)
    assert not np.any(weights(ag.grad(score, dead)))


@holds(
    lambda op: (
        op.name in {"add", "subtract", "compose", "intersect", "sequence_loss", "beam_search"}
    )
)
def a_single_graph_is_used_with_every_element(op, arguments):
    first, second = arguments
    expected = [snapshot(op.call(first, second))] * 3
    assert [snapshot(g) for g in op.call(first, [second] * 3)] == expected
    assert [snapshot(g) for g in op.call([first] * 3, second)] == expected
    assert [snapshot(g) for g in op.call([first], [second] * 3)] == expected
    assert [snapshot(g) for g in op.call([first] * 3, [second])] == expected


@holds(with_lists, of_batches=True)
def a_list_equals_a_loop(op, batch):
    expected = [snapshot(op.call(*arguments)) for arguments in batch]
    columns = [list(column) for column in zip(*batch, strict=True)]
    assert [snapshot(graph) for graph in op.call(*columns)] == expected


@holds(with_lists, of_batches=True)
def the_number_of_threads_changes_no_bit(op, batch):
    before = ag.get_num_threads()
    found = []
    try:
        for num_threads in (1, 2, 5):
            ag.set_num_threads(num_threads)
            columns = [leaves(column) for column in zip(*batch, strict=True)]
            # One graph is shared by the whole batch: its gradient is a sum over the elements.
            columns[0] = [columns[0][0]] * len(batch) if len(columns) == 1 else columns[0]
            outputs = op.call(*columns)
            ag.backward(outputs)
            results = [snapshot(graph) for graph in outputs]
            results += [snapshot(graph.grad()) for column in columns for graph in column]
            found.append(results)
    finally:
        ag.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("op", OPS, ids=map(str, OPS))
@given(data=st.data())
def test_every_law(op: Op, data):
    batch = data.draw(st.lists(op.inputs, min_size=1, max_size=4 if op.batch else 1))
    laws = [law for law in LAWS if law.applies(op)]
    # Graphs cache results of calls, so each law is checked first once.
    first = data.draw(st.integers(0, len(laws) - 1))
    failures = []
    for law in laws[first:] + laws[:first]:
        try:
            law.check(op, batch)
        except Exception as error:
            failures.append((law.name, error))
    if failures:
        found = "\n".join(f"{name}: {type(e).__name__}: {e}" for name, e in failures)
        raise AssertionError(f"{op} breaks these laws:\n{found}") from failures[0][1]


def test_every_law_applies_to_an_op():
    for law in LAWS:
        assert any(map(law.applies, OPS)), law.name


# The random graphs of the laws


@given(graphs())
def test_both_language_functions_agree(graph):
    short = {s: v for s, v in language(graph).items() if max(map(len, s)) <= 3}
    assert_same(strings(graph), short, 1e-9)


def best_rounds(graph, arcs):
    """For each node on an accepted path, the best score of a cycle of these arcs through it."""
    before = all_distances(graph, TROPICAL)
    after = all_distances(graph, TROPICAL, reverse=True)
    step = np.full((len(before),) * 2, -math.inf)
    for arc in arcs:
        step[arc.src, arc.dst] = max(step[arc.src, arc.dst], arc.weight)
    around = np.diag(times(step, star(step, TROPICAL), TROPICAL)).tolist()
    return [r for n, r in enumerate(around) if before[n] + after[n] > -math.inf]


@pytest.mark.parametrize("kind", [convergent, without_gain, partial(closable, cyclic=True)])
def test_most_random_graphs_with_cycles_have_one_on_an_accepted_path(kind):
    seen = Counter()

    @settings(max_examples=max(100, settings().max_examples))
    @given(kind())
    def look(graph):
        arcs = table(graph).arcs
        rounds = best_rounds(graph, arcs)
        silent = best_rounds(graph, [a for a in arcs if a.ilabel == a.olabel == ag.epsilon])
        seen["graphs"] += 1
        seen["cycles"] += max(rounds, default=-math.inf) > -math.inf
        seen["silent cycles"] += max(silent, default=-math.inf) > -math.inf
        seen["cycles of weight 0"] += 0.0 in rounds
        seen["close to divergence"] += spectral_radius(graph) > 0.7

    look()
    assert seen["cycles"] >= 0.6 * seen["graphs"] > 5
    assert seen["silent cycles"] >= 0.2 * seen["graphs"]
    if kind is without_gain:
        assert seen["cycles of weight 0"] >= 0.2 * seen["graphs"]
    if kind is convergent:
        assert seen["close to divergence"] >= 0.1 * seen["graphs"]


@given(closable())
def test_closable_graphs_have_a_convergent_closure(graph):
    assert total(graph) < math.log(0.8)
