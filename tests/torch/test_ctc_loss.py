"""The CTC loss with the interface of torch."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch_cases import batch, collapse_ctc, random

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens


def brute_force(x, spells):
    """The log-sum over all label sequences that `spells` accepts, and over all."""
    frames, labels = x.shape
    allowed = everything = torch.tensor(-math.inf, dtype=x.dtype)
    for path in itertools.product(range(labels), repeat=frames):
        score = sum((x[t, c] for t, c in enumerate(path)), torch.zeros((), dtype=x.dtype))
        everything = torch.logaddexp(everything, score)
        times = spells(path)
        if times:
            allowed = torch.logaddexp(allowed, score + math.log(times))
    return allowed, everything


FORMATS = ["padded", "concatenated"]


def small_batch():
    """The same with few numbers, for finite differences."""
    logits = random(6, 4, 5).requires_grad_()
    targets = torch.tensor([[1, 2, 2], [4, 0, 0], [0, 0, 0], [3, 3, 0]])
    return logits, targets, torch.tensor([6, 3, 2, 5]), torch.tensor([3, 1, 0, 2])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("kind", ["tensor", "list", "tuple"])
def test_ctc_is_a_drop_in_for_torch(layout, reduction, kind):
    logits, targets, lengths, sizes = batch(layout)
    if kind != "tensor":
        lengths, sizes = (
            {"list": list, "tuple": tuple}[kind](x.tolist()) for x in (lengths, sizes)
        )
    log_probs = logits.log_softmax(-1)
    # Torch's empty targets need padding that is a label.
    expected = F.ctc_loss(log_probs, targets.clamp_min(1), lengths, sizes, reduction=reduction)
    actual = agt.ctc_loss(log_probs, targets, lengths, sizes, reduction=reduction)
    assert actual.dtype is expected.dtype
    assert torch.allclose(actual, expected)
    ours, theirs = (
        torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (actual, expected)
    )
    assert torch.allclose(ours, theirs, atol=1e-10)
    module = agt.CTCLoss(reduction=reduction)(log_probs, targets, lengths, sizes)
    assert torch.equal(module, actual)


def test_ctc_from_logits_applies_log_softmax():
    logits, targets, lengths, sizes = batch()
    inside = agt.ctc_loss(logits, targets, lengths, sizes, from_logits=True)
    outside = agt.ctc_loss(logits.log_softmax(-1), targets, lengths, sizes)
    assert torch.allclose(inside, outside)
    ours, theirs = (torch.autograd.grad(x, logits)[0] for x in (inside, outside))
    assert torch.allclose(ours, theirs, atol=1e-12)
    assert ours[7:, 1].abs().max() == 0


def test_ctc_of_one_example_without_a_batch():
    logits = random(9, 5).requires_grad_()
    target = torch.tensor([1, 1, 4])
    for size in (torch.tensor(3), torch.tensor([3]), (3,), 3):
        length = torch.tensor(9) if isinstance(size, torch.Tensor) else 9
        actual = agt.ctc_loss(logits.log_softmax(-1), target, length, size)
        expected = F.ctc_loss(logits.log_softmax(-1), target, torch.tensor(9), torch.tensor(3))
        assert actual.shape == ()
        assert torch.allclose(actual, expected)
    alone = agt.ctc_loss(logits, target, 9, 3, reduction="none", from_logits=True)
    assert alone.shape == ()


def test_ctc_with_another_blank():
    logits, targets, lengths, sizes = batch()
    expected = F.ctc_loss(logits.log_softmax(-1), targets.clamp_min(0) % 5, lengths, sizes, blank=5)
    actual = agt.ctc_loss(logits.log_softmax(-1), targets.clamp_min(0) % 5, lengths, sizes, blank=5)
    assert torch.allclose(actual, expected)


def test_ctc_gradient_is_exact_with_respect_to_its_input():
    logits, targets, lengths, sizes = small_batch()

    def loss(x):
        return agt.ctc_loss(x, targets, lengths, sizes, reduction="none")

    assert gradcheck(loss, logits)
    assert gradgradcheck(loss, logits)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_ctc_from_logits_second_order(reduction):
    logits, targets, lengths, sizes = small_batch()
    options = {"reduction": reduction, "from_logits": True}
    assert gradcheck(lambda x: agt.ctc_loss(x, targets, lengths, sizes, **options), logits)
    assert gradgradcheck(lambda x: agt.ctc_loss(x, targets, lengths, sizes, **options), logits)


@given(st.integers(0, 4), st.lists(st.integers(1, 2), max_size=3), st.integers(0, 1000))
def test_ctc_equals_the_sum_over_all_alignments(frames, target, seed):
    x = random(frames, 3, seed=seed)
    allowed, everything = brute_force(x, lambda path: collapse_ctc(path) == target)
    actual = agt.ctc_loss(x, target or np.zeros(0, int), [frames], [len(target)], reduction="sum")
    assert actual.item() == pytest.approx(-allowed.item(), abs=1e-9)
    options = {"reduction": "sum", "from_logits": True}
    actual = agt.ctc_loss(x, target or np.zeros(0, int), [frames], [len(target)], **options)
    assert actual.item() == pytest.approx((everything - allowed).item(), abs=1e-9)


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_an_infeasible_target(from_logits, zero_infinity):
    x = random(3, 2, 4).requires_grad_()
    targets, lengths, sizes = torch.tensor([[1, 1], [1, 2]]), [2, 3], [2, 2]
    losses = agt.ctc_loss(
        x,
        targets,
        lengths,
        sizes,
        reduction="none",
        zero_infinity=zero_infinity,
        from_logits=from_logits,
    )
    assert losses[0].item() == (0.0 if zero_infinity else math.inf)
    assert losses[1].isfinite()
    losses.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[:, 0].abs().max() == 0
    assert x.grad[:, 1].abs().max() > 0


def test_why_a_target_is_infeasible():
    loss = agt.TransducerLoss(Tokens.ctc(4), normalize=False)
    x = torch.zeros(4, 3, 4)
    x[2, :, 3] = -math.inf
    x[3] = -math.inf
    targets = [[1, 1], [1, 1, 1], [3], [1]]
    found = loss.explain_infeasible(x, targets, lengths=[3, 3, 3, 3])
    assert sorted(found) == [1, 2, 3]
    assert found[1] == "the target needs at least 5 frames, but there are 3"
    assert "every alignment has a score of -inf" in found[2]
    nothing = agt.SequenceLoss([ag.Graph(calc_grad=False)] * 2)
    assert nothing.explain_infeasible(x[:2], targets[:2])[0] == "the target has no alignment at all"
    ctc = agt.CTCLoss()
    assert ctc.explain_infeasible(torch.zeros(2, 1, 4), torch.tensor([[1, 1]]), [2], [2]) == {
        0: "the target needs at least 3 frames, but there are 2"
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("from_logits", [False, True])
def test_nan_raises_or_propagates(bad, from_logits):
    x = random(5, 3, 4)
    x[3, 1, 2] = bad
    x[4, 2, 1] = math.nan  # beyond its length
    x.requires_grad_()
    targets, lengths, sizes = torch.tensor([[1], [2], [3]]), torch.tensor([5, 5, 4]), [1, 1, 1]
    with pytest.raises(
        ValueError, match=r"sequence_loss \(element 1 of 3\): the emission of label"
    ):
        agt.ctc_loss(x, targets, lengths, sizes, from_logits=from_logits)
    options = {"reduction": "none", "nan": "propagate", "from_logits": from_logits}
    losses = agt.ctc_loss(x, targets, lengths, sizes, **options)
    assert losses.isnan().tolist() == [False, True, False]
    losses.nansum().backward()
    assert x.grad[:, [0, 2]].isfinite().all()
    (grad,) = torch.autograd.grad(agt.ctc_loss(x, targets, lengths, sizes, **options).sum(), x)
    assert grad[:, 1].isnan().all()
    assert grad[:, [0, 2]].isfinite().all()


def test_ctc_in_lower_precision():
    logits, targets, lengths, sizes = batch(dtype=torch.float32)
    exact = agt.ctc_loss(logits.double(), targets, lengths, sizes, from_logits=True)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        loss = agt.ctc_loss(logits.to(dtype), targets, lengths, sizes, from_logits=True)
        assert loss.dtype is torch.float32
        assert loss.item() == pytest.approx(exact.item(), rel=tolerance)


def test_an_empty_batch():
    x = torch.zeros(5, 0, 3, requires_grad=True)
    targets = torch.zeros(0, 2, dtype=torch.long)
    assert agt.ctc_loss(x, targets, [], [], reduction="none").shape == (0,)
    assert agt.ctc_loss(x, targets, [], [], reduction="sum").item() == 0.0


@pytest.mark.parametrize(
    ("targets", "lengths", "sizes", "message"),
    [
        ([[1, 2]], [5], [2], "there must be one target per example, 2 in all, but there are 1"),
        (
            [[1, 6], [1, 1]],
            [5, 5],
            [2, 2],
            r"element 0 of 2\): a label of the target must be 0 to 3 a",
        ),
        ([[1, 0], [1, 1]], [5, 5], [2, 2], r"element 0 of 2\): a label of the target must be"),
        ([[1, -1], [1, 1]], [5, 5], [2, 2], r"element 0 of 2\): a label of the target must be"),
        ([[1, 1], [1, 1]], [5, 6], [2, 2], "a length must be between 0 and 5"),
        ([[1, 1], [1, 1]], [5], [2, 2], "there must be one length per example, 2"),
        ([[1, 1], [1, 1]], [5, 5], [2, 3], "must be 0 or more and at most 2, but length 1 is 3"),
        ([[1, 1], [1, 1]], [5, 5], [2, -1], "must be 0 or more and at most 2, but length 1 is -1"),
        (
            [1, 1, 2],
            [5, 5],
            [2, 2],
            "must add up to the 3 labels of the target, but they add up to 4",
        ),
        ([1, 1, 2], [5, 5], None, "need target_lengths, but there are none"),
    ],
)
def test_bad_targets_and_lengths(targets, lengths, sizes, message):
    x = torch.zeros(5, 2, 4)
    with pytest.raises(ValueError, match=message):
        agt.ctc_loss(x, torch.tensor(targets), lengths, sizes)


@pytest.mark.parametrize("shape", [(), (4,), (5, 1, 4, 1)])
def test_bad_shapes(shape):
    with pytest.raises(ValueError, match=r"must be \[T, B, C\] or \[T, C\], but it is \["):
        agt.ctc_loss(torch.zeros(shape), torch.tensor([[1]]), [5], [1])
    with pytest.raises(ValueError, match=r"must be \[B, T, C\] or \[T, C\], but it is \["):
        agt.ASGLoss(4)(torch.zeros(shape), torch.tensor([[1]]), [5], [1])


def test_bad_options_and_types():
    x, targets = torch.zeros(5, 1, 4), torch.tensor([[1]])
    with pytest.raises(
        ValueError, match="reduction must be 'none', 'sum' or 'mean', but it is 'a'"
    ):
        agt.ctc_loss(x, targets, [5], [1], reduction="a")
    with pytest.raises(ValueError, match="nan must be 'raise' or 'propagate', but it is 'b'"):
        agt.CTCLoss(nan="b")
    with pytest.raises(TypeError, match="targets must hold whole numbers, but they are float32"):
        agt.ctc_loss(x, targets.float(), [5], [1])
    with pytest.raises(ValueError, match=r"one dimension or two, but their shape is \[1, 1, 1\]"):
        agt.ctc_loss(x, targets[None], [5], [1])
    with pytest.raises(
        TypeError, match="targets must be a tensor, an array or a list, but they ar"
    ):
        agt.ctc_loss(x, 3, [5], [1])
    with pytest.raises(
        ValueError, match="must be 'emissions', None, a graph or a function, but it"
    ):
        agt.SequenceLoss(normalizer="all")
    with pytest.raises(ValueError, match="there must be alignments, or a subclass"):
        agt.SequenceLoss()(torch.zeros(1, 2, 3), [[1]])
