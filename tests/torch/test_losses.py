"""Sequence losses as modules of torch: options, shapes, compilation and errors."""

import copy
import math
import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_cases import F64, batch, random, small_bigram

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens

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
def test_the_operator_of_compiled_losses_passes_opcheck():
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
def test_value_and_gradient_of_a_compiled_loss_use_the_same_penalty():
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


def test_a_batch_without_examples_has_a_gradient():
    layer = torch.nn.Linear(3, 4)
    loss = agt.ASGLoss(4, reduction="sum")
    value = loss(layer(torch.zeros(0, 5, 3)), [])
    value.backward()
    assert value.item() == 0.0
    assert loss.transitions.grad.abs().max() == 0


@pytest.mark.parametrize("normalizer", ["emissions", None])
def test_emissions_without_any_path_give_an_infinite_loss_and_no_gradient(normalizer):
    tokens = ag.tokens.Tokens.ctc(4)
    loss = agt.SequenceLoss(
        lambda targets: ag.tokens.alignment_graph(tokens, targets), normalizer, reduction="none"
    )
    x = torch.zeros(2, 5, 4)
    x[0] = -torch.inf
    x.requires_grad_()
    values = loss(x, [[1, 2], [3]])
    assert values[0] == torch.inf
    assert values[1].isfinite()
    (gradient,) = torch.autograd.grad(values.sum(), x, create_graph=True)
    assert not gradient[0].any()
    assert gradient[1].any()
    gradient.square().sum().backward()
    assert not x.grad[0].any()
    assert x.grad.isfinite().all()
