"""Star temporal classification against its definition."""

import functools
import math

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.utils.checkpoint import checkpoint
from torch_cases import random

import arcgrad.torch as agt

# Star temporal classification


def stc_reference(x, target, penalty, self_loops):
    """The sum over all frame sequences, each frame a blank, star or label, by recursion."""
    log_probs = x.log_softmax(-1)
    star = log_probs[:, 1:].logsumexp(-1)
    total = torch.tensor(-math.inf, dtype=x.dtype)

    # A step is a blank, a star, or the next label; with self-loops also the label again.
    def walk(t, k, last, score):
        nonlocal total
        if t == len(x):
            if k == len(target):
                total = torch.logaddexp(total, score)
            return
        walk(t + 1, k, "blank", score + log_probs[t, 0])
        others = star[t]
        if k < len(target):
            others = others + torch.log1p(-torch.exp(log_probs[t, target[k]] - star[t]))
        walk(t + 1, k, "star", score + others + math.log(penalty))
        if k < len(target):
            repeats = last == "label" and k > 0 and target[k] == target[k - 1]
            if not (self_loops and repeats):
                walk(t + 1, k + 1, "label", score + log_probs[t, target[k]])
        if self_loops and last == "label":
            walk(t + 1, k, "label", score + log_probs[t, target[k - 1]])

    walk(0, 0, "start", torch.zeros((), dtype=x.dtype))
    return -total


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("target", [[], [1], [2, 2], [1, 3]])
def test_stc_equals_its_definition(target, self_loops):
    x = random(4, 4).requires_grad_()
    loss = agt.STCLoss(p0=0.4, plast=0.4, self_loops=self_loops, reduction="none")
    expected = stc_reference(x, target, 0.4, self_loops)
    actual = loss(x[None], [target])[0]
    assert torch.allclose(actual, expected, rtol=1e-13)
    ours, theirs = (torch.autograd.grad(value, x)[0] for value in (actual, expected))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-14)
    assert gradgradcheck(lambda x: loss(x[None], [target]), x)


def test_stc_penalty_moves_in_training_only():
    loss = agt.STCLoss(p0=0.2, plast=0.6, half_life=2)
    x = random(1, 5, 4).requires_grad_()
    loss.eval()
    loss(x, [[1]])
    assert loss.penalty() == pytest.approx(0.2)
    loss.train()
    loss(x, [[1]])
    loss(x, [[1]])
    assert loss.penalty() == pytest.approx(0.4)
    restored = agt.STCLoss(p0=0.2, plast=0.6, half_life=2)
    restored.load_state_dict(loss.state_dict())
    assert restored.penalty() == loss.penalty()


@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")  # of torch 2.4
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_stc_counts_a_step_once_under_activation_checkpointing(use_reentrant):
    found = []
    for run in (lambda f, x: f(x), functools.partial(checkpoint, use_reentrant=use_reentrant)):
        loss = agt.STCLoss(p0=0.1, plast=0.9, half_life=1)
        x = random(1, 5, 4).requires_grad_()
        for _ in range(2):
            value = run(lambda x, loss=loss: loss(x, [[1]]), x)
            value.backward()
        assert loss.penalty_steps == 2
        found.append((value, x.grad))
    for plain, checkpointed in zip(*found, strict=True):
        assert torch.equal(plain, checkpointed)


def test_stc_does_not_count_a_call_that_fails():
    loss = agt.STCLoss()
    with pytest.raises(ValueError, match="a label of a target must be"):
        loss(random(1, 5, 4), [[7]])
    assert loss.penalty_steps == 0


def test_stc_is_finite_where_one_label_has_all_the_probability():
    x = torch.full((1, 4, 3), -1e4)
    x[..., 1] = 1e4
    x.requires_grad_()
    loss = agt.STCLoss()(x, [[1, 1]])
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()
    with pytest.raises(ValueError, match="p0 and plast must be probabilities above 0"):
        agt.STCLoss(p0=0.0)
    with pytest.raises(ValueError, match="the blank must be a label of the emissions, below 3"):
        agt.STCLoss(blank=3)(x, [[1]])


# Regression tests


def test_stc_in_half_precision_and_where_only_the_blank_is_possible():
    x = random(8, 30, 12, dtype=torch.float32)
    targets = [[1, 2, 3]] * 8
    loss = agt.STCLoss().eval()
    exact = loss(x.bfloat16().double(), targets)
    assert loss(x.bfloat16(), targets).item() == pytest.approx(exact.item(), rel=1e-5)
    x = random(1, 4, 3)
    x[0, 0, 1:] = -math.inf
    x.requires_grad_()
    value = loss(x, [[1]])
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    exact = stc_reference_of_blank_first(x.detach())
    assert value.item() == pytest.approx(exact, rel=1e-6)


def stc_reference_of_blank_first(x):
    """The first frame is certainly a blank, so the other frames decide."""
    rest = agt.STCLoss(reduction="sum").eval()
    return rest(x[:, 1:], [[1]]).item()
