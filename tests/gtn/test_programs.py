"""Whole programs written for gtn run on `arcgrad.gtn`."""

import itertools
import math

import numpy as np
import pytest
from gtn_programs import chain
from tools import run_python

import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon


def token_graph(token):
    """One or more frames of a token, which is written once."""
    graph = gtn.Graph(False)
    graph.add_node(True)
    graph.add_node(False, True)
    graph.add_arc(0, 1, token, token)
    graph.add_arc(1, 1, token, epsilon)
    return graph


def test_figure_1_of_the_paper_runs():
    program = """
from arcgrad.gtn import *

def ASG(emissions, transitions, target):
    A = intersect(intersect(target, transitions), emissions)
    Z = intersect(transitions, emissions)
    A_score = forward_score(A)
    Z_score = forward_score(Z)
    loss = negate(subtract(A_score, Z_score))
    emissions.zero_grad()
    transitions.zero_grad()
    backward(loss, retain_graph=False)
    return loss.item(), emissions.grad(), transitions.grad()

transitions = Graph()
transitions.add_node(True, True)
for token in range(2):
    transitions.add_arc(0, 0, token)

target = Graph(False)
target.add_node(True)
target.add_node()
target.add_node(False, True)
for node, token in [(1, 0), (2, 1)]:
    target.add_arc(node - 1, node, token)
    target.add_arc(node, node, token)

loss, emissions_grad, transitions_grad = ASG(linear_graph(3, 2), transitions, target)
print(round(loss, 4))
print(*emissions_grad.weights_to_list())
print(*transitions_grad.weights_to_list())
"""
    assert run_python(program).splitlines() == [
        "1.3863",
        "-0.5 0.5 0.0 0.0 0.5 -0.5",
        "0.0 0.0",
    ]


def ctc_by_operations(emissions, target, blank):
    """CTC from token graphs: labels, then an optional blank, forced between equal labels."""
    pieces = []
    optional = gtn.Graph(False)
    optional.add_node(True, True)
    optional.add_arc(0, 0, blank, epsilon)
    forced = gtn.Graph(False)
    forced.add_node(True)
    forced.add_node(False, True)
    forced.add_arc(0, 1, blank, epsilon)
    forced.add_arc(1, 1, blank, epsilon)
    for before, token in zip([None, *target], target, strict=False):
        pieces += [forced if before == token else optional, token_graph(token)]
    alignments = gtn.project_input(gtn.remove(gtn.concat([*pieces, optional])))
    return gtn.negate(gtn.forward_score(gtn.intersect(alignments, emissions)))


def ctc_by_enumeration(log_probs, target, blank):
    frames, labels = log_probs.shape
    total = -math.inf
    for path in itertools.product(range(labels), repeat=frames):
        if [x for x, _ in itertools.groupby(path) if x != blank] == target:
            total = np.logaddexp(total, log_probs[np.arange(frames), path].sum())
    return -total


@pytest.mark.parametrize("target", [[], [1], [1, 2], [2, 2], [1, 2, 1]])
def test_ctc_built_from_operations_equals_the_criterion(target):
    log_probs = np.log(np.random.default_rng(5).dirichlet(np.ones(3), 5)).astype(np.float32)
    losses, gradients = [], []
    for loss in (ctc_by_operations, gtn.criterion.ctc_loss):
        emissions = gtn.linear_graph(5, 3)
        emissions.set_weights(log_probs.ctypes.data)
        value = loss(emissions, target, 0)
        gtn.backward(value)
        losses.append(value.item())
        gradients.append(emissions.grad().weights_to_numpy())
    # Scores of float32 products have a relative error of up to 1e-6.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert losses[0] == pytest.approx(ctc_by_enumeration(log_probs, target, 0), abs=1e-6)
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-6)
    assert gradients[0].reshape(5, 3).sum(1) == pytest.approx(-1, abs=1e-6)


def test_a_batch_trains_by_gradient_descent():
    targets = [[1], [1, 2], [2, 1]]
    values = np.zeros((3, 4, 3), np.float32)
    history = []
    for _ in range(20):
        exact = values - np.logaddexp.reduce(values, axis=2, keepdims=True)
        emissions = [gtn.linear_graph(4, 3, True) for _ in targets]
        losses = [None] * len(targets)

        def process(b, emissions=emissions, exact=exact, losses=losses):
            emissions[b].set_weights(np.ascontiguousarray(exact[b]))
            losses[b] = gtn.criterion.ctc_loss(emissions[b], targets[b], 0)
            gtn.backward(losses[b])

        gtn.parallel_for(process, range(len(targets)))
        grads = np.stack([e.grad().weights_to_numpy().reshape(4, 3) for e in emissions])
        values -= grads - np.exp(exact) * grads.sum(2, keepdims=True)
        history.append(sum(loss.item() for loss in losses))
    assert history[-1] < history[0] / 3
    assert all(after < before for before, after in itertools.pairwise(history))


@pytest.mark.parametrize(
    ("source", "target", "distance"),
    [([0, 1, 2], [0, 1, 2], 0), ([0, 1, 2], [0, 2], 1), ([], [1, 1], 2), ([0, 1], [1, 0, 0], 2)],
)
def test_an_edit_transducer_gives_the_edit_distance(source, target, distance):
    edits = gtn.Graph(False)
    edits.add_node(True, True)
    for a, b in itertools.product([epsilon, 0, 1, 2], repeat=2):
        if (a, b) != (epsilon, epsilon):
            edits.add_arc(0, 0, a, b, 0.0 if a == b else -1.0)
    best = gtn.viterbi_score(gtn.compose(gtn.compose(chain(*source), edits), chain(*target)))
    assert best.item() == -distance


def test_decoding_frames_gives_labels():
    blank = gtn.Graph(False)
    blank.add_node(True, True)
    blank.add_arc(0, 0, 2, epsilon)
    tokens = gtn.concat([token_graph(0), blank, token_graph(1), blank])
    emissions = gtn.linear_graph(5, 3)
    emissions.set_weights([5, 0, 0, 5, 0, 0, 0, 0, 5, 0, 5, 0, 0, 0, 5])
    best = gtn.viterbi_path(emissions)
    assert best.labels_to_list() == [0, 0, 2, 1, 2]
    labels = gtn.remove(gtn.project_output(gtn.viterbi_path(gtn.compose(best, tokens))))
    assert labels.labels_to_list() == [0, 1]


def test_decoding_only_blanks_gives_no_labels():
    blank = gtn.Graph(False)
    blank.add_node(True, True)
    blank.add_arc(0, 0, 1, epsilon)
    emissions = gtn.linear_graph(3, 2)
    emissions.set_weights([0, 5, 0, 5, 0, 5])
    labels = gtn.remove(gtn.project_output(gtn.compose(gtn.viterbi_path(emissions), blank)))
    assert labels.labels_to_list() == []
    assert labels.labels_to_list(False) == []
    assert gtn.forward_score(labels).item() == 0.0


def test_the_module_can_stand_in_for_gtn_without_changing_imports():
    program = """
import sys, arcgrad.gtn
sys.modules["gtn"] = arcgrad.gtn
import gtn
import gtn.criterion
from gtn.criterion import ctc_loss
from gtn import Graph, cuda
print(ctc_loss(gtn.linear_graph(1, 2), [1], 0).item(), gtn.criterion.ctc_loss is ctc_loss)
print(isinstance(ctc_loss(gtn.linear_graph(1, 2), [1], 0), Graph), gtn.cuda.is_available())
"""
    assert run_python(program).split() == ["0.0", "True", "True", "False"]
