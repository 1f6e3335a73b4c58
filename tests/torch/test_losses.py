"""Sequence losses as modules of torch."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens

F64 = torch.float64


def random(*shape, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


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


def collapse_ctc(path):
    return [c for i, c in enumerate(path) if c != 0 and (i == 0 or path[i - 1] != c)]


# CTC with the interface of torch


FORMATS = ["padded", "concatenated"]


def batch(layout="padded", dtype=F64, seed=0):
    """Emissions [T, B, C] with ragged lengths, and targets with repeats and an empty one."""
    logits = random(12, 4, 6, dtype=dtype, seed=seed).requires_grad_()
    rows = [[1, 2, 2, 3], [5], [], [4, 4, 4]]
    sizes = torch.tensor([len(row) for row in rows])
    if layout == "padded":
        targets = torch.full((4, 4), -7)
        for i, row in enumerate(rows):
            targets[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    else:
        targets = torch.tensor(list(itertools.chain(*rows)))
    return logits, targets, torch.tensor([12, 7, 3, 6]), sizes


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


# Losses in general


def test_a_sequence_loss_of_graphs_and_functions():
    x = random(2, 4, 3).requires_grad_()
    tokens = Tokens.ctc(3)
    targets = [[1], [2, 1]]
    graphs = ag.tokens.alignment_graph(tokens, targets)
    expected = agt.ctc_loss(x.transpose(0, 1), torch.tensor([1, 2, 1]), [4, 4], [1, 2],
                            from_logits=True)  # fmt: skip
    by_graphs = agt.SequenceLoss(graphs)
    by_function = agt.SequenceLoss(lambda targets: ag.tokens.alignment_graph(tokens, targets))
    everything = ag.Graph.from_arrays([0] * 3, [0] * 3, [0, 1, 2], start=[0], accept=[0])
    with_graph = agt.SequenceLoss(graphs, everything)
    with_maker = agt.SequenceLoss(graphs, lambda: everything)
    for loss in (by_graphs, by_function, with_graph, with_maker):
        assert torch.allclose(loss(x, targets), expected)
        assert gradcheck(lambda x, loss=loss: loss(x, targets), x)
        assert gradgradcheck(lambda x, loss=loss: loss(x, targets), x)
    assert torch.allclose(agt.SequenceLoss(graphs, None)(x.log_softmax(-1), targets), expected)


def test_losses_are_never_negative():
    x = random(3, 6, 4)
    for tokens in (Tokens.ctc(4), Tokens.spike(4), Tokens.limited(4, 2), Tokens.spaced(4, 1, 2)):
        losses = agt.TransducerLoss(tokens, reduction="none")(x, [[1, 2], [3], [1]])
        assert (losses >= 0).all()


@pytest.mark.parametrize(
    "tokens",
    [
        Tokens.asg(3),
        Tokens.ctc(3),
        Tokens.ctc(3, blank_label=2),
        Tokens.spike(3),
        Tokens.limited(3, 2),
        Tokens.spaced(3, 1, 2),
        Tokens(3, blank="forced"),
        Tokens(3, blank="optional"),
        Tokens(3, blank="optional", overrides={1: (1, 1)}),
    ],
    ids=str,
)
def test_every_kind_of_tokens(tokens):
    x = random(2, 5, 3).requires_grad_()
    label = 0 if tokens.blank_label != 0 else 1
    targets = [[label, 1 if label == 0 else 2], [label]]
    loss = agt.TransducerLoss(tokens)
    assert gradcheck(lambda x: loss(x, targets), x)
    assert gradgradcheck(lambda x: loss(x, targets), x)
    # Against the full token graph: one path for each way that frames spell the target.
    for i, target in enumerate(targets):
        spelled = ag.compose(tokens.graph(), ag.chain_graph(target))
        emissions = ag.linear_graph(5, 3, x[i].detach().numpy())
        allowed = ag.forward_score(ag.compose(emissions, spelled)).item()
        everything = ag.forward_score(emissions).item()
        actual = agt.TransducerLoss(tokens, reduction="none")(x[i], target)
        assert actual.item() == pytest.approx(everything - allowed, abs=1e-9)


def test_targets_may_be_graphs():
    x = random(2, 5, 4).requires_grad_()
    either = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([3])])
    loss = agt.TransducerLoss(Tokens.ctc(4), reduction="none")
    both = torch.logaddexp(-loss(x, [[1, 2]] * 2), -loss(x, [[3]] * 2))
    assert torch.allclose(-loss(x, [either, either]), both)
    mean = agt.TransducerLoss(Tokens.ctc(4))
    with pytest.raises(ValueError, match="divides by the lengths of targets, but graphs have none"):
        mean(x, [either, either])
    assert torch.allclose(mean(x, [either, either], target_lengths=[2, 4]),
                          (-both / torch.tensor([2, 4])).mean())  # fmt: skip


def test_padding_does_not_change_the_loss():
    x = random(3, 8, 5).requires_grad_()
    longer = torch.cat([x, torch.full((3, 4, 5), 1e4, dtype=F64)], 1)
    lengths, targets = [8, 5, 3], torch.tensor([[1, 2], [3, 9], [4, 9]])
    sizes = torch.tensor([2, 1, 1])
    for loss in (agt.TransducerLoss(Tokens.ctc(5)), agt.TransducerLoss(Tokens.asg(5))):
        short, long = (loss(e, targets, lengths, sizes) for e in (x, longer))
        assert torch.equal(short, long)
        one, two = (torch.autograd.grad(value, x)[0] for value in (short, long))
        assert torch.equal(one, two)
        assert one[1, 5:].abs().max() == 0
        assert loss.viterbi(x, lengths) == loss.viterbi(longer, lengths)


# Transitions


def small_bigram(num_labels=3):
    nodes = range(num_labels + 1)
    arcs = [(i, j + 1, j) for i in nodes for j in range(num_labels)]
    src, dst, label = zip(*arcs, strict=True)
    weight = random(len(arcs), seed=5).numpy()
    return ag.Graph.from_arrays(src, dst, label, weight=weight, start=[0], accept=list(nodes))


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


# Modules


def modules():
    return {
        "CTCLoss": agt.CTCLoss(from_logits=True),
        "ASGLoss": agt.ASGLoss(4),
        "STCLoss": agt.STCLoss(),
        "TransducerLoss": agt.TransducerLoss(Tokens.ctc(4), transitions=small_bigram(4)),
        "SequenceLoss": agt.SequenceLoss(ag.tokens.alignment_graph(Tokens.ctc(4), [[1], [2, 1]])),
    }


def call(loss, x):
    targets, sizes = torch.tensor([[1, 0], [2, 1]]), torch.tensor([1, 2])
    if isinstance(loss, agt.CTCLoss):
        return loss(x.transpose(0, 1), targets, torch.tensor([6, 5]), sizes)
    return loss(x, targets, torch.tensor([6, 5]), sizes)


@pytest.mark.parametrize("name", modules())
def test_modules_are_copied_and_pickled(name):
    loss = modules()[name].double().eval()
    for parameter in loss.parameters():
        torch.nn.init.normal_(parameter)
    x = random(2, 6, 4).requires_grad_()
    expected = call(loss, x)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(call(other, x), expected)
        assert other._handle != loss._handle
        assert name in repr(other)
    fresh = modules()[name].double().eval()
    fresh.load_state_dict(loss.state_dict())
    assert torch.equal(call(fresh, x), expected)


def test_parameters_of_another_graph_are_refused():
    first = agt.TransducerLoss(Tokens.ctc(3), transitions=small_bigram())
    graph = small_bigram()
    src, dst, label, _, weight = graph.arcs()
    turned = ag.Graph.from_arrays(src[::-1].copy(), dst[::-1].copy(), label[::-1].copy(),
                                  weight=weight, start=[0], accept=graph.accept())  # fmt: skip
    second = agt.TransducerLoss(Tokens.ctc(3), transitions=turned)
    with pytest.raises(RuntimeError, match="so the graph must be the one they were saved with"):
        second.load_state_dict(first.state_dict())
    with pytest.raises(RuntimeError, match=r"size mismatch|fingerprint"):
        agt.ASGLoss(3).load_state_dict(agt.ASGLoss(4).state_dict())


@pytest.mark.filterwarnings("ignore")  # a warning of the compiler itself
@pytest.mark.parametrize("name", ["CTCLoss", "ASGLoss", "STCLoss", "TransducerLoss"])
def test_named_losses_compile_without_a_break(name):
    loss = modules()[name].double().eval()

    def step(x):
        return call(loss, torch.sin(x)) * 2

    x = random(2, 6, 4).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), step(x))
    inputs = [x, *loss.parameters()]
    ours, theirs = (torch.autograd.grad(f(x), inputs) for f in (compiled, step))
    for one, two in zip(ours, theirs, strict=True):
        assert torch.allclose(one, two)


@pytest.mark.filterwarnings("ignore")
def test_the_operator_of_compiled_losses_is_well_made():
    from arcgrad.torch._compiled import sequence_loss

    for name, loss in modules().items():
        loss = loss.double().eval()
        x = random(2, 6, 4).requires_grad_()
        if name == "CTCLoss":
            x = x.detach().transpose(0, 1).contiguous().requires_grad_()
        arguments = (
            x,
            torch.tensor([[1, 0], [2, 1]]),
            torch.tensor([6, 5]),
            torch.tensor([1, 2]),
            [weight.detach().requires_grad_() for weight in loss.weights()],
            loss._handle,
        )
        for reduction, zero_infinity in (("none", True), ("mean", False)):
            torch.library.opcheck(sequence_loss, (*arguments, reduction, zero_infinity))


@pytest.mark.filterwarnings("ignore")
def test_the_functional_form_compiles():
    logits, targets, lengths, sizes = batch()

    def step(x):
        return agt.ctc_loss(x.exp(), targets, lengths, sizes, from_logits=True)

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(logits), step(logits))


# Word pieces


PIECES = ["a", "b", "c", "ab", "bc", "abc", "ca"]


def marginal_by_enumeration(x, lexicon, text, transitions=None):
    """The log-sum over all decompositions, each with a loss of its own."""
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


def test_back_off_transitions_are_learned():
    counts = ag.ngram.count([[1, 2, 3], [2, 3, 3], [1, 1]], 2, num_tokens=4)
    graph = ag.ngram.backoff_graph(counts)
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
    epsilons = torch.from_numpy(graph.ilabels() == ag.epsilon)
    assert grad[epsilons].abs().max() > 0


def test_transitions_of_every_order():
    assert agt.TransducerLoss(3, transitions=0).transitions is None
    assert agt.TransducerLoss(3, transitions=1).transitions.shape == (3,)
    assert agt.TransducerLoss(3, transitions=2, blank="optional").transitions.shape == (20,)
    with pytest.raises(ValueError, match="dense_graph: "):
        agt.TransducerLoss(3, transitions=-1)


# Regression tests


def test_there_must_be_one_alignment_graph_per_example():
    loss = agt.SequenceLoss(lambda targets: [ag.chain_graph([1, 2])] * 40)
    with pytest.raises(
        ValueError,
        match="SequenceLoss: there must be one graph of alignments per example, 1 in all",
    ):
        loss(torch.zeros(1, 2, 3), [[1]])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_loss_without_any_path_is_infinite(reduction, zero_infinity):
    x = torch.zeros(3, 2, 4)
    x[1, 0] = -math.inf
    x.requires_grad_()
    options = {"reduction": reduction, "zero_infinity": zero_infinity, "from_logits": True}
    loss = agt.ctc_loss(x, torch.tensor([[1], [2]]), [3, 3], [1, 1], **options)
    total = loss.sum()
    assert total.isfinite() == zero_infinity
    assert not loss.isnan().any()
    total.backward()
    assert x.grad.isfinite().all()
    batch_first = agt.TransducerLoss(Tokens.ctc(4))
    assert 0 in batch_first.explain_infeasible(x.transpose(0, 1), [[1], [2]])


@pytest.mark.parametrize(
    "loss", [agt.ASGLoss(4), agt.ASGLoss(4, repeats=1), agt.STCLoss()], ids=repr
)
def test_target_lengths_are_checked_by_every_loss(loss):
    labels = getattr(loss, "num_labels", 5)
    x = torch.zeros(2, 6, labels)
    padded = torch.tensor([[1, 2], [3, 1]])
    with pytest.raises(ValueError, match="length"):
        loss(x, padded, target_lengths=[2, 5])
    with pytest.raises(ValueError, match="length"):
        loss(x, padded, target_lengths=[2, -1])
    with pytest.raises(ValueError, match="add up"):
        loss(x, torch.tensor([1, 2, 3]), target_lengths=[1, 1])
    with pytest.raises(ValueError, match="the length of target 0 of a list must be 3, the"):
        loss(x, [[1, 2, 1], [3]], target_lengths=[2, 1])
    with pytest.raises(TypeError, match=r"whole numbers, but they are \[1, 2.9\]"):
        loss(x[:1], [1, 2.9])


def test_graphs_are_refused_where_labels_are_needed():
    for loss in (agt.STCLoss(), agt.ASGLoss(4, repeats=1)):
        with pytest.raises(TypeError, match="targets must be labels, but target 0 is a graph"):
            loss(torch.zeros(1, 6, 5), [ag.chain_graph([1])], target_lengths=[1])


@pytest.mark.filterwarnings("ignore")
def test_the_penalty_of_a_compiled_loss_is_that_of_its_gradient():
    x = random(1, 8, 5).requires_grad_()
    targets = torch.tensor([[1, 2]])
    values = []
    for compiled in (False, True):
        loss = agt.STCLoss(p0=0.01, plast=0.9, half_life=1.0)
        torch._dynamo.reset()
        call = torch.compile(loss, backend="aot_eager") if compiled else loss
        value = call(x, targets)
        values.append((value, *torch.autograd.grad(value, x)))
    for one, two in zip(*values, strict=True):
        assert torch.allclose(one, two)


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


def test_unpacking_ignores_garbage():
    assert agt.ASGLoss(3, repeats=1, garbage=True).unpack([0, 4, 3, 4, 1]) == [0, 0, 1]


def test_a_batch_without_examples_has_a_gradient():
    layer = torch.nn.Linear(3, 4)
    loss = agt.ASGLoss(4, reduction="sum")
    value = loss(layer(torch.zeros(0, 5, 3)), [])
    value.backward()
    assert value.item() == 0.0
    assert loss.transitions.grad.abs().max() == 0
