"""The ASG loss against equation 2 of the paper, with repeats and garbage."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch_cases import random

import arcgrad as ag
import arcgrad.torch as agt

# ASG


def asg_reference(x, transitions, target):
    """Equation 2 of the paper by recursion over frames, with a node per label of the target."""
    score = transitions[0] + x[0]
    allowed = torch.full((len(target),), -1e30, dtype=x.dtype)
    allowed = torch.where(torch.arange(len(target)) == 0, score[target[0]], allowed)
    for t in range(1, len(x)):
        score = torch.logsumexp(score[:, None] + transitions[1:], 0) + x[t]
        stay = allowed + torch.stack([transitions[c + 1, c] for c in target])
        come = torch.stack(
            [torch.tensor(-1e30, dtype=x.dtype)]
            + [allowed[i - 1] + transitions[target[i - 1] + 1, target[i]]
               for i in range(1, len(target))]
        )  # fmt: skip
        allowed = torch.logaddexp(stay, come) + torch.stack([x[t, c] for c in target])
    return score.logsumexp(0) - allowed[-1]


def test_asg_is_figure_1():
    loss = agt.ASGLoss(4, reduction="none").double()
    with torch.no_grad():
        loss.transitions.copy_(random(5, 4, seed=3))
    x = random(2, 6, 4).requires_grad_()
    targets = [[0, 1, 2], [3, 3]]
    actual = loss(x, targets)
    expected = torch.stack(
        [asg_reference(e, loss.transitions, y) for e, y in zip(x, targets, strict=True)]
    )
    assert torch.allclose(actual, expected)
    ours = torch.autograd.grad(actual.sum(), (x, loss.transitions))
    theirs = torch.autograd.grad(expected.sum(), (x, loss.transitions))
    for one, two in zip(ours, theirs, strict=True):
        assert torch.allclose(one, two, atol=1e-10)

    def value(x, weights):
        return loss.losses(x, targets, None, None, weights)[0]

    weights = loss.transitions.detach().requires_grad_()
    assert gradcheck(value, (x, weights))
    assert gradgradcheck(value, (x, weights))


def test_asg_uses_the_dense_kernel():
    loss = agt.ASGLoss(30)
    emissions = agt.emissions(torch.zeros(2, 5, 30))
    assert ag.explain(ag.intersect(loss._bigram, emissions))[0].kernel == "dense"


@given(st.lists(st.integers(0, 2), max_size=8), st.integers(0, 3))
def test_repeats_are_packed_and_unpacked(target, repeats):
    loss = agt.ASGLoss(3, repeats=repeats)
    packed = loss.pack(target)
    assert loss.unpack(packed) == target
    assert all(label < loss.num_labels for label in packed)
    if repeats:
        assert all(a != b or b < 3 for a, b in itertools.pairwise(packed))
    else:
        assert packed == target


def test_repeats_and_garbage():
    loss = agt.ASGLoss(2, repeats=1, garbage=True, reduction="none").double()
    assert loss.num_labels == 4
    assert loss.pack([0, 0, 0, 1]) == [0, 2, 0, 1]
    x = random(1, 5, 4)
    # "00" is spelled 3 0 3 2 3 with garbage 3, which takes all five frames.
    expected = x[0].logsumexp(-1).sum() - x[0, range(5), [3, 0, 3, 2, 3]].sum()
    assert loss(x, [[0, 0]]).item() == pytest.approx(expected.item())
    assert loss.unpack([0, 2, 1]) == [0, 0, 1]
    one_hot = torch.eye(4)[torch.tensor([[3, 0, 3, 2, 3, 1, 3]])].double() * 9
    assert loss.viterbi(one_hot) == [[0, 0, 1]]
    with pytest.raises(
        ValueError, match="a token of a target must be between 0 and 1, but token 1"
    ):
        loss(x, [[0, 2]])
    with pytest.raises(ValueError, match=r"must have 4 labels \(2 tokens, 1 repeats, 1 garbage\)"):
        loss(x[..., :3], [[0]])
    with pytest.raises(ValueError, match="at least one token and 0 or more repeats, but there are"):
        agt.ASGLoss(0)


# Regression tests


def test_unpacking_ignores_garbage():
    assert agt.ASGLoss(3, repeats=1, garbage=True).unpack([0, 4, 3, 4, 1]) == [0, 0, 1]
