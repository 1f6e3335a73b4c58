import itertools
import math

import numpy as np
import pytest
from gradients import assert_gradient
from tools import weights

import arcgrad as ag


def collapse(frames, blank):
    return tuple(label for label, _ in itertools.groupby(frames) if label != blank)


def by_enumeration(log_probs, target, blank):
    length, num_labels = log_probs.shape
    scores = [
        sum(log_probs[t, c] for t, c in enumerate(frames))
        for frames in itertools.product(range(num_labels), repeat=length)
        if collapse(frames, blank) == tuple(target)
    ]
    return -float(np.logaddexp.reduce(scores, initial=-math.inf))


@pytest.mark.parametrize("target", [[], [0], [0, 1], [0, 0], [1, 1, 0], [0, 1, 0]])
@pytest.mark.parametrize("blank", [2, 0])
def test_equals_the_sum_over_all_alignments(target, blank):
    labels = [label for label in range(3) if label != blank]
    target = [labels[label] for label in target]
    log_probs = np.random.default_rng(0).normal(size=(4, 3))
    loss = ag.criterion.ctc_loss(ag.linear_graph(4, 3, log_probs), target, blank)
    assert loss.item() == pytest.approx(by_enumeration(log_probs, target, blank), abs=1e-9)


def test_has_the_gradient_of_finite_differences():
    log_probs = np.random.default_rng(1).normal(size=(5, 3))
    emissions = ag.linear_graph(5, 3, log_probs)
    assert_gradient(lambda e: ag.criterion.ctc_loss(e, [0, 0, 1], 2), emissions)


def test_an_infeasible_target_costs_infinity_and_has_no_gradient():
    emissions = ag.linear_graph(2, 3, dtype="float64")
    loss = ag.criterion.ctc_loss(emissions, [0, 0], 2)
    assert loss.item() == math.inf
    assert not np.any(weights(ag.grad(loss, emissions)))


def test_takes_lists():
    emissions = [ag.linear_graph(4, 3), ag.linear_graph(5, 3)]
    targets = [[0, 1], [1]]
    losses = ag.criterion.ctc_loss(emissions, targets, 2)
    expected = [
        ag.criterion.ctc_loss(*pair, 2).item() for pair in zip(emissions, targets, strict=True)
    ]
    assert [loss.item() for loss in losses] == expected


@pytest.mark.parametrize(("target", "blank"), [([2], 2), ([-1], 2), ([0], 3), ([3], 2)])
def test_rejects_labels_out_of_range(target, blank):
    with pytest.raises(ValueError, match=r"ctc_loss: .*, but"):
        ag.criterion.ctc_loss(ag.linear_graph(4, 3), target, blank)
