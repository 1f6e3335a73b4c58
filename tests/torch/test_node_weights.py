"""Graphs with node weights as functions of torch."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import arcgrad as ag
import arcgrad.torch as agt

F64 = torch.float64


def two_ends():
    """Strings of 1 that end in one of two nodes: 3 arcs, 1 start node, 2 accept nodes."""
    return ag.Graph.from_arrays(
        [0, 1, 0], [1, 1, 2], [1, 1, 1], start=[0], accept=[1, 2], start_weights=[0.0]
    )


def test_a_tensor_has_node_weights_after_those_of_arcs():
    weights = torch.tensor([0.1, 0.2, 0.3, 1.0, 2.0, 3.0], dtype=F64)
    graph = agt.graph(two_ends(), weights)
    assert graph.weights_to_list() == [0.1, 0.2, 0.3]
    assert graph.start_weights().tolist() == [1.0]
    assert graph.accept_weights().tolist() == [2.0, 3.0]
    assert agt.tensor(graph).tolist() == weights.tolist()
    with pytest.raises(ValueError, match="one weight per arc, start and accept node, 6, but"):
        agt.graph(two_ends(), weights[:3])


def test_gradients_of_programs():
    weights = torch.randn(6, dtype=F64, generator=torch.Generator().manual_seed(0))
    frames = torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(1))

    def program(weights, frames):
        product = ag.intersect(agt.graph(two_ends(), weights), agt.emissions(frames))
        path = agt.tensor(ag.viterbi_path(product))
        return agt.tensor(ag.forward_score(product)) + path.square().sum()

    inputs = (weights.requires_grad_(), frames.requires_grad_())
    assert gradcheck(program, inputs)
    assert gradgradcheck(program, inputs)


def test_transitions_of_a_loss_keep_their_node_weights():
    tokens = ag.tokens.Tokens(2)
    transitions = ag.Graph.from_arrays(
        [0, 0, 1, 1],
        [1, 1, 1, 1],
        [0, 1, 0, 1],
        weight=[0.1, 0.2, 0.3, 0.4],
        start=[0],
        accept=[1],
        accept_weights=[-1.5],
        dtype="float64",
    )
    frames = torch.randn(1, 5, 2, dtype=F64, generator=torch.Generator().manual_seed(2))
    loss = agt.TransducerLoss(tokens, transitions=transitions, reduction="sum")
    assert loss.transitions.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.0, -1.5])
    loss(frames, [[0, 1]]).backward()
    # Every path of either score ends at the only accept node.
    assert loss.transitions.grad[-1].item() == pytest.approx(0.0, abs=1e-12)


def test_beam_search_counts_node_weights():
    graph = two_ends()
    graph.set_accept_weight(2, 10.0)
    frames = torch.zeros(1, 1, 3, dtype=F64)
    (best,) = agt.beam_search(frames, graph, nbest=1)[0]
    assert best.score == pytest.approx(10.0)
