"""`arcgrad.criterion.ctc_loss`: its alignment graph, edge cases, types and errors."""

import itertools
import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from tools import weights

import arcgrad as ag
from arcgrad.criterion import _alignments, ctc_loss


def collapse(frames, blank):
    return [label for label, _ in itertools.groupby(frames) if label != blank]


@given(
    target=st.lists(st.integers(0, 2), max_size=3),
    frames=st.integers(0, 5),
    blank=st.integers(0, 3),
)
def test_every_alignment_is_one_path(target, frames, blank):
    target = [label + (label >= blank) for label in target]
    emissions = ag.linear_graph(frames, 4, dtype="float64")
    count = sum(
        collapse(path, blank) == target for path in itertools.product(range(4), repeat=frames)
    )
    expected = -math.log(count) if count else math.inf
    assert ctc_loss(emissions, target, blank).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("target", "num_arcs"), [([], 1), ([1], 5), ([1, 2], 10), ([1, 1], 9), ([1, 1, 2, 1], 19)]
)
def test_the_alignment_graph_has_two_nodes_per_label_and_one(target, num_arcs):
    graph = _alignments(ag.linear_graph(1, 3), target, 0, "ctc_loss")
    assert graph.num_nodes() == 2 * len(target) + 1
    assert graph.num_arcs() == num_arcs
    assert graph.is_acceptor()
    assert not graph.calc_grad


@given(seed=st.integers(0, 1000), target=st.lists(st.integers(0, 1), max_size=3))
def test_equals_the_sum_over_all_alignments(seed, target):
    log_probs = np.log(np.random.default_rng(seed).dirichlet(np.ones(3), 5))
    scores = [
        log_probs[np.arange(5), path].sum()
        for path in itertools.product(range(3), repeat=5)
        if collapse(path, 2) == target
    ]
    expected = -np.logaddexp.reduce(scores, initial=-math.inf)
    loss = ctc_loss(ag.linear_graph(5, 3, log_probs), target, 2)
    assert loss.item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("target", [[], [1], [1, 1], [2, 1, 1]])
def test_first_and_second_derivatives_equal_finite_differences(target):
    emissions = ag.linear_graph(5, 3, np.random.default_rng(3).normal(size=(5, 3)))
    assert_gradient(lambda e: ctc_loss(e, target, 0), emissions)
    assert_second_order(lambda e: ctc_loss(e, target, 0), emissions)


def test_the_losses_of_all_targets_are_a_distribution():
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), 4))
    emissions = ag.linear_graph(4, 3, log_probs)
    targets = [list(t) for n in range(5) for t in itertools.product([1, 2], repeat=n)]
    total = sum(math.exp(-ctc_loss(emissions, target, 0).item()) for target in targets)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_without_frames_only_the_empty_target_fits():
    emissions = ag.linear_graph(0, 3)
    assert ctc_loss(emissions, [], 0).item() == 0.0
    assert ctc_loss(emissions, [1], 0).item() == math.inf


@pytest.mark.parametrize(("frames", "target"), [(1, [1, 2]), (2, [1, 1]), (3, [1, 2, 2])])
def test_an_infeasible_target_costs_infinity_and_has_zero_gradient(frames, target):
    emissions = ag.linear_graph(frames, 3)
    loss = ctc_loss(emissions, target, 0)
    ag.backward(loss)
    assert loss.item() == math.inf
    assert weights(emissions.grad()).tolist() == [0.0] * (3 * frames)


def test_one_infeasible_element_leaves_the_others_alone():
    emissions = [ag.linear_graph(2, 2), ag.linear_graph(2, 2)]
    losses = ctc_loss(emissions, [[1, 1], [1]], 0)
    ag.backward(losses)
    assert losses[0].item() == math.inf
    assert losses[1].item() == pytest.approx(-math.log(3))
    assert weights(emissions[0].grad()).tolist() == [0.0] * 4
    assert weights(emissions[1].grad()) == pytest.approx(-np.array([1, 2, 1, 2]) / 3)


def test_labels_may_be_any_integers():
    emissions = ag.linear_graph(3, 4)
    expected = ctc_loss(emissions, [1, 2], 3).item()
    for target in ((1, 2), np.array([1, 2], np.int64), np.array([1, 2], np.uint8), range(1, 3)):
        assert ctc_loss(emissions, target, np.int32(3)).item() == expected


def test_labels_that_are_not_integers_are_a_type_error():
    with pytest.raises(TypeError):
        ctc_loss(ag.linear_graph(3, 4), [1.5], 0)
    with pytest.raises(TypeError):
        ctc_loss(ag.linear_graph(3, 4), [1], 0.5)


def test_emissions_may_be_any_acceptor():
    lattice = ag.union([ag.chain_graph([1, 0, 2]), ag.chain_graph([1, 2]), ag.chain_graph([2])])
    assert ctc_loss(lattice, [1, 2], 0).item() == pytest.approx(-math.log(2))
    assert ctc_loss(lattice, [3], 0).item() == math.inf


@pytest.mark.parametrize(
    ("target", "blank", "message"),
    [
        ([1, 3], 0, "a target label must be between 0 and 2, but it is 3"),
        ([1, -1], 0, "a target label must be between 0 and 2, but it is -1"),
        ([1], 3, "blank_idx must be between 0 and 2, but it is 3"),
        ([1], -1, "blank_idx must be between 0 and 2, but it is -1"),
        ([1, 0], 0, "a target label must differ from the blank, but label 1 of the target is 0"),
    ],
)
def test_labels_out_of_range_are_named(target, blank, message):
    with pytest.raises(ValueError, match=f"ctc_loss: {message}"):
        ctc_loss(ag.linear_graph(3, 3), target, blank)


def test_labels_of_a_lattice_are_checked_too():
    with pytest.raises(ValueError, match=r"a target label must be between 0 and .*, but it is -1"):
        ctc_loss(ag.chain_graph([1, 2]), [-1], 0)


def test_an_error_in_a_list_names_the_element():
    emissions = [ag.linear_graph(3, 3)] * 2
    with pytest.raises(ValueError, match=r"ctc_loss \(element 1 of 2\): .*, but it is 5"):
        ctc_loss(emissions, [[1], [5]], 0)


def test_a_list_needs_one_target_per_graph():
    with pytest.raises(ValueError, match=r"ctc_loss: .* but there are 1 targets for 2 graphs"):
        ctc_loss([ag.linear_graph(3, 3)] * 2, [[1]], 0)


def test_an_empty_list_has_no_losses():
    assert ctc_loss([], [], 0) == []


def test_a_transducer_is_an_error():
    with pytest.raises(ValueError, match="intersect"):
        ctc_loss(ag.chain_graph([1], [2]), [1], 0)
