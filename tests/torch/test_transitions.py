"""Sequence losses with learned or fixed transitions, and with word pieces."""

import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_cases import F64, collapse_ctc, random, small_bigram

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens

# Transitions


def test_learned_transitions_equal_the_sum_over_all_paths():
    x = random(4, 3).requires_grad_()
    graph = small_bigram()
    loss = agt.TransducerLoss(Tokens.ctc(3), transitions=graph, reduction="none").double()
    weights = loss.transitions.reshape(4, 3)
    allowed = everything = torch.tensor(-math.inf, dtype=F64)
    for path in itertools.product(range(3), repeat=4):
        score = sum(x[t, c] for t, c in enumerate(path))
        score = score + sum(weights[a, b] for a, b in zip([0, *(c + 1 for c in path)], path,
                                                          strict=False))  # fmt: skip
        everything = torch.logaddexp(everything, score)
        if collapse_ctc(path) == [1, 2]:
            allowed = torch.logaddexp(allowed, score)
    expected = everything - allowed
    actual = loss(x, [1, 2])
    assert torch.allclose(actual, expected)
    ours = torch.autograd.grad(actual, (x, loss.transitions))
    theirs = torch.autograd.grad(expected, (x, loss.transitions))
    for one, two in zip(ours, theirs, strict=True):
        assert torch.allclose(one, two)


def test_transitions_are_twice_differentiable():
    x = random(2, 4, 3).requires_grad_()
    loss = agt.TransducerLoss(Tokens.ctc(3), transitions=small_bigram()).double()

    def value(x, weights):
        return loss.losses(x, [[1], [2, 1]], None, None, weights)[0]

    weights = loss.transitions.detach().requires_grad_()
    assert gradcheck(value, (x, weights))
    assert gradgradcheck(value, (x, weights))


def test_fixed_transitions_are_a_buffer():
    loss = agt.TransducerLoss(Tokens.ctc(3), transitions=small_bigram(), learn_transitions=False)
    assert list(loss.parameters()) == []
    assert loss.transitions.shape == (12,)
    loss(random(1, 4, 3).requires_grad_(), [[1]]).backward()


def test_a_lexicon_spells_targets_in_all_ways():
    # Pieces 1 "a", 2 "b", 3 "ab" over the letters 0 and 1.
    lexicon = ag.closure(ag.union([
        ag.chain_graph([1], [0]),
        ag.chain_graph([2], [1]),
        ag.chain_graph([3, ag.epsilon], [0, 1]),
    ]))  # fmt: skip
    x = random(2, 4, 4).requires_grad_()
    loss = agt.TransducerLoss(3, lexicon, blank="optional", allow_repeats=False, reduction="none")
    plain = agt.TransducerLoss(Tokens.ctc(4), reduction="none")
    for targets, ways in (([[0, 1]] * 2, [[1, 2], [3]]), ([[0, 0, 1]] * 2, [[1, 1, 2], [1, 3]])):
        expected = -torch.stack([-plain(x, [way] * 2) for way in ways]).logsumexp(0)
        assert torch.allclose(loss(x, targets), expected)
    assert gradgradcheck(lambda x: loss(x, [[0, 1], [1]]), x)


def test_emissions_and_tokens_must_fit():
    loss = agt.TransducerLoss(3, blank="optional")
    with pytest.raises(ValueError, match="emissions must have 4 labels, as the tokens have"):
        loss(torch.zeros(1, 5, 3), [[1]])
    with pytest.raises(ValueError, match="transitions must be an acceptor"):
        agt.TransducerLoss(3, transitions=ag.chain_graph([1], [2]))
    with pytest.raises(ValueError, match="belong to a number of tokens, but the tokens are Tokens"):
        agt.TransducerLoss(Tokens.ctc(3), blank="optional")
    with pytest.raises(
        ValueError, match=r"alignment_graph \(element 1 of 2\): a label of the targ"
    ):
        loss(torch.zeros(2, 5, 4), [[1], [4]])


# Word pieces


PIECES = ["a", "b", "c", "ab", "bc", "abc", "ca"]


def marginal_by_enumeration(x, lexicon, text, transitions=None):
    """The log-sum over all decompositions, by one loss per decomposition."""
    plain = agt.TransducerLoss(
        Tokens.ctc(len(PIECES) + 1), transitions=transitions, reduction="none"
    ).double()
    ways = list(lexicon.enumerate(text))
    assert len(ways) == lexicon.count(text)
    return -torch.stack([-plain(x, [way])[0] for way in ways]).logsumexp(0)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("text", ["a", "abc", "abca", "cab", "bcabc"])
def test_marginalized_pieces_equal_the_sum_over_all_decompositions(text, order):
    lexicon = ag.lexicon.Lexicon(PIECES, first_label=1)
    loss = agt.TransducerLoss(
        PIECES, lexicon, order, blank="optional", allow_repeats=False, reduction="none"
    ).double()
    transitions = None
    if order:
        torch.nn.init.normal_(loss.transitions)
        transitions = ag.ngram.dense_graph(len(PIECES) + 1, order, dtype="float64")
        transitions.set_weights(loss.transitions.detach().numpy())
    x = random(1, 7, len(PIECES) + 1).requires_grad_()
    expected = marginal_by_enumeration(x, lexicon, text, transitions)
    actual = loss(x, [text])[0]
    assert torch.allclose(actual, expected)
    ours, theirs = (torch.autograd.grad(value, x)[0] for value in (actual, expected))
    assert torch.allclose(ours, theirs, atol=1e-10)
    # The mean divides by the number of graphemes.
    loss.reduction = "mean"
    assert torch.allclose(loss(x, [text]), expected / len(text))
    graphemes = lexicon.spell(text)
    assert torch.allclose(loss(x, [graphemes]), loss(x, [text]))


@pytest.mark.parametrize(("backoff", "label"), [("failure", ag.phi), ("epsilon", ag.epsilon)])
def test_back_off_transitions_are_learned(backoff, label):
    counts = ag.ngram.count([[1, 2, 3], [2, 3, 3], [1, 1]], 2, num_tokens=4)
    graph = ag.ngram.backoff_graph(counts, backoff=backoff)
    loss = agt.TransducerLoss(Tokens.asg(4), transitions=graph).double()
    assert loss.transitions.numel() == graph.num_arcs()
    x = random(2, 5, 4).requires_grad_()

    def value(x, weights):
        return loss.losses(x, [[1, 2, 3], [2, 3]], None, None, weights)

    weights = random(graph.num_arcs(), seed=2).requires_grad_()
    assert gradcheck(value, (x, weights))
    assert gradgradcheck(value, (x, weights))
    # Back-off arcs count too.
    (grad,) = torch.autograd.grad(value(x, weights).sum(), weights)
    back_offs = torch.from_numpy(graph.ilabels() == label)
    assert grad[back_offs].abs().max() > 0


@pytest.mark.parametrize("backoff", ["failure", "epsilon"])
def test_transitions_from_counts(backoff):
    counts = ag.ngram.count([[1, 2, 3], [2, 3, 3]], 2, num_tokens=4)
    loss = agt.TransducerLoss(
        3, transitions=counts, backoff=backoff, blank="optional", allow_repeats=False
    )
    expected = ag.ngram.backoff_graph(
        counts, backoff=backoff, blank="optional", blank_label=0, self_loops=True
    )
    assert ag.equal(loss.transition_graph(), expected)
    x = random(1, 7, 4)
    assert loss(x, [[1, 2, 3]]).item() > 0


def test_transitions_of_other_counts_are_rejected():
    counts = ag.ngram.count([[1, 5]], 2)
    with pytest.raises(ValueError, match="counts must be of the 4 labels, but they have 6 tokens"):
        agt.TransducerLoss(Tokens.asg(4), transitions=counts)
    with pytest.raises(ValueError, match="backoff belongs to counts, but the transitions are None"):
        agt.TransducerLoss(Tokens.asg(4), backoff="epsilon")


def test_transitions_of_every_order():
    assert agt.TransducerLoss(3, transitions=0).transitions is None
    assert agt.TransducerLoss(3, transitions=1).transitions.shape == (3,)
    assert agt.TransducerLoss(3, transitions=2, blank="optional").transitions.shape == (20,)
    with pytest.raises(ValueError, match="dense_graph: "):
        agt.TransducerLoss(3, transitions=-1)
