"""arc_posteriors: probabilities, derivatives and errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from strategies import graphs
from tools import build, weights

import arcgrad as ag


@given(graphs())
def test_posteriors_are_the_gradient_of_the_forward_score(graph):
    posteriors = ag.arc_posteriors(graph)
    gradient = ag.grad(ag.forward_score(graph), graph)
    assert weights(posteriors) == pytest.approx(weights(gradient), abs=1e-12)


@given(graphs())
def test_posteriors_are_probabilities_on_the_same_arcs(graph):
    for semiring in ("log", "tropical"):
        posteriors = ag.arc_posteriors(graph, semiring=semiring)
        values = weights(posteriors)
        assert np.all((values >= 0.0) & (values <= 1.0 + 1e-12))
        assert posteriors.labels_to_list() == graph.labels_to_list()
        assert posteriors.start().tolist() == graph.start().tolist()


def test_without_a_path_every_posterior_is_zero():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 1.0), (1, 2, 0, 0, -math.inf)])
    assert ag.arc_posteriors(graph).weights_to_list() == [0.0, 0.0]
    assert ag.arc_posteriors(graph, semiring="tropical").weights_to_list() == [0.0, 0.0]


def test_the_posteriors_of_a_frame_sum_to_one():
    emissions = ag.linear_graph(50, 7, np.random.default_rng(0).normal(size=(50, 7)))
    frames = weights(ag.arc_posteriors(emissions)).reshape(50, 7).sum(1)
    assert frames == pytest.approx(np.ones(50), abs=1e-6)


def test_the_entropy_of_the_paths_is_differentiable():
    # H = log Z - <posterior, weight>; its gradient is -Hessian(log Z) weight.
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.3), (0, 1, 1, 1, -0.4), (0, 1, 2, 2, 1.1)])
    p, w = weights(ag.arc_posteriors(graph)), weights(graph)
    posteriors = ag.arc_posteriors(graph)
    seed = posteriors.detach()
    seed.set_weights(w)
    expected = p * (w - p @ w)
    assert weights(ag.grad(posteriors, graph, seed)) == pytest.approx(expected, abs=1e-12)


def test_a_third_derivative_is_an_error():
    # Posteriors are a first derivative, so their second derivative would be a third one.
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.3), (0, 1, 1, 1, -0.4)])
    with pytest.raises(RuntimeError, match=r"arc_posteriors: .*order"):
        ag.grad(ag.arc_posteriors(graph), graph, create_graph=True)


def test_rejects_an_unknown_semiring():
    with pytest.raises(ValueError, match=r"arc_posteriors: .*semiring.*, but .*real"):
        ag.arc_posteriors(ag.Graph(), semiring="real")


def test_rejects_nan():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    with pytest.raises(ValueError, match=r"arc_posteriors: .*, but .*arc 0"):
        ag.arc_posteriors(graph)
