"""viterbi_score: the best score, its gradient and errors."""

import math

import numpy as np
import pytest
from tools import acceptor, build, weights

import arcgrad as ag


def test_the_empty_graph_scores_minus_infinity():
    assert ag.viterbi_score(ag.Graph()).item() == -math.inf


def test_a_start_that_accepts_scores_zero():
    assert ag.viterbi_score(build(1, {0}, {0}, [])).item() == 0.0


def test_is_minus_infinity_with_zero_gradient_when_no_path_is_accepted():
    graph = build(2, {0}, set(), [(0, 1, 0, 0, 1.0)])
    score = ag.viterbi_score(graph)
    assert score.item() == -math.inf
    assert weights(ag.grad(score, graph)).tolist() == [0.0]


def test_the_gradient_of_a_tie_follows_the_smallest_arc_ids():
    graph = build(2, {0}, {1}, [(0, 1, 1, 1, 0.5), (0, 1, 0, 0, 0.5)])
    assert weights(ag.grad(ag.viterbi_score(graph), graph)).tolist() == [1.0, 0.0]


def test_the_score_of_a_float32_graph_is_float64():
    assert ag.viterbi_score(acceptor((0,), dtype="float32")).dtype == np.float64


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_cycle_that_gains_nothing_is_not_taken(weight):
    graph = build(2, {0}, {1}, [(0, 0, 0, 0, weight), (0, 1, 1, 1, 0.5)])
    score = ag.viterbi_score(graph)
    assert score.item() == 0.5
    assert weights(ag.grad(score, graph)).tolist() == [0.0, 1.0]


def test_rejects_a_positive_cycle_and_names_it():
    arcs = [(0, 1, 0, 0, 2.0), (1, 0, 0, 0, -1.0), (1, 2, 0, 0, 0.0)]
    with pytest.raises(ValueError, match=r"viterbi_score: .*, but .*node"):
        ag.viterbi_score(build(3, {0}, {2}, arcs))


def test_a_positive_cycle_on_no_accepted_path_does_not_matter():
    arcs = [(0, 1, 0, 0, 0.5), (2, 2, 0, 0, 1.0), (2, 1, 0, 0, 0.0), (0, 3, 0, 0, 0.0)]
    arcs.append((3, 3, 0, 0, 1.0))
    assert ag.viterbi_score(build(4, {0}, {1}, arcs)).item() == 0.5


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_rejects_nan_and_infinity_and_names_the_arc(weight):
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, weight)])
    with pytest.raises(ValueError, match=r"viterbi_score: .*, but .*arc 1"):
        ag.viterbi_score(graph)
