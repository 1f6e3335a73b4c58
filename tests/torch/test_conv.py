"""The convolution with graphs for kernels, against its definition and against convolutions."""

import itertools
import math

import numpy as np
import pytest
import torch
from conv_layers import PIECES, make
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint
from torch_cases import F64, random

import arcgrad as ag
import arcgrad.torch as agt

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def as_function(layer, **options):
    """The layer as a function of the input and the weights."""
    return lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, x, options)


def path_scores(kernel, window):
    """The score of every accepted path of a kernel over the frames of a window, by enumeration."""
    src, dst, _, label, weight = (list(column) for column in kernel.arcs())
    accept = set(kernel.accept())
    found = []
    stack = [(int(node), 0, 0.0) for node in kernel.start()]
    while stack:
        node, t, score = stack.pop()
        if t == len(window) and node in accept:
            found.append(score)
        for a in range(len(src)):
            if src[a] != node:
                continue
            if label[a] == ag.epsilon:
                stack.append((dst[a], t, score + weight[a]))
            elif t < len(window):
                stack.append((dst[a], t + 1, score + weight[a] + window[t][label[a]]))
    return found


def brute_force(layer, x):
    """The definition, for one example."""
    k, s, d = layer.kernel_size, layer.stride, layer.dilation
    padded = np.pad(x.detach().numpy(), (layer._pads, (0, 0)))
    starts = range(0, len(padded) - d * (k - 1), s)
    out = np.full((len(starts), layer.out_channels), -np.inf)
    for (row, start), (i, kernel) in itertools.product(
        enumerate(starts), enumerate(layer.kernels())
    ):
        scores = path_scores(kernel, padded[start : start + d * (k - 1) + 1 : d])
        if scores:
            out[row, i] = max(scores) if layer.viterbi else np.logaddexp.reduce(scores)
    return torch.from_numpy(out)


# Meaning


@given(
    kernel_size=st.integers(3, 4),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
    viterbi=st.booleans(),
    frames=st.integers(1, 9),
)
def test_outputs_are_the_scores_of_all_paths(
    kernel_size, stride, padding, dilation, viterbi, frames
):
    layer = make(PIECES, kernel_size, stride, padding, dilation, viterbi=viterbi)
    x = random(2, frames, 3)
    if layer.output_lengths(frames) == 0:
        with pytest.raises(ValueError, match=r"at least \d+ frames, but it has"):
            layer(x)
        return
    expected = torch.stack([brute_force(layer, example) for example in x])
    assert torch.allclose(layer(x), expected, atol=1e-12)


def transducer_kernel():
    """A transducer with epsilon arcs, several starts and accepts: its output labels matter."""
    return ag.Graph.from_arrays(
        [0, 0, 1, 2, 1, 3, 2],
        [1, 2, 3, 3, 1, 4, 2],
        [9, 9, 9, 8, 7, -1, 2],
        [0, 1, 2, -1, 0, -1, 1],
        weight=np.linspace(-1, 1, 7),
        start=[0, 1],
        accept=[3, 4],
    )


def test_kernels_may_be_any_graphs():
    kernels = [transducer_kernel(), ag.tokens.ctc_graph([1, 2]), ag.chain_graph([2, 1, 0])]
    layer = agt.ConvTransducer1d(3, kernels, 3, dtype=F64)
    assert layer.weight.tolist() == [w for kernel in kernels for w in kernel.weights_to_list()]
    x = random(7, 3)
    assert torch.allclose(layer(x), brute_force(layer, x), atol=1e-12)


def test_kernels_may_be_linear_graphs_and_products():
    linear = ag.linear_graph(2, 3, random(2, 3).numpy())
    product = ag.intersect(ag.tokens.ctc_graph([1]), linear)
    layer = agt.ConvTransducer1d(3, [linear, product], 2, dtype=F64)
    x = random(5, 3, seed=1)
    assert torch.allclose(layer(x), brute_force(layer, x), atol=1e-12)
    assert gradgradcheck(as_function(layer), (x.requires_grad_(), layer.weight))


def test_kernels_of_one_size_have_second_derivatives():
    layer = make([[1], [2]], 2)
    assert gradgradcheck(as_function(layer), (random(3, 3).requires_grad_(), layer.weight))


def test_kernels_may_come_from_a_function():
    layer = agt.ConvTransducer1d(5, lambda labels: [[c] for c in range(1, labels)], 3)
    assert layer.out_channels == 4
    same = agt.ConvTransducer1d(5, [[1], [2], [3], [4]], 3)
    x = random(2, 6, 5, dtype=torch.float32)
    assert torch.equal(layer(x), same(x))


def test_kernels_may_be_a_lexicon():
    lexicon = ag.lexicon.Lexicon(["a", "ab", "bb"])
    layer = agt.ConvTransducer1d(3, lexicon, 3)
    x = random(2, 6, 3, dtype=torch.float32)
    assert torch.equal(layer(x), agt.ConvTransducer1d(3, [[1], [1, 2], [2, 2]], 3)(x))
    last = agt.ConvTransducer1d(3, lexicon, 3, tokens=ag.tokens.Tokens.ctc(3, blank_label=2))
    assert torch.equal(last(x[..., [1, 2, 0]]), layer(x))
    with pytest.raises(ValueError, match=r"each of the 2 graphemes .* but there are 4 input chan"):
        agt.ConvTransducer1d(4, lexicon, 3)
    with pytest.raises(ValueError, match="fit into 2 frames, the kernel size, but kernel 'bb' n"):
        agt.ConvTransducer1d(3, lexicon, 2)


@pytest.mark.parametrize(
    "tokens", [ag.tokens.Tokens.ctc(3, blank_label=2), ag.tokens.Tokens.spike(3)]
)
def test_tokens_say_which_frames_spell_a_piece(tokens):
    x = random(5, 3)
    pieces = [[1], [1, 1]]
    layer = agt.ConvTransducer1d(3, pieces, 5, tokens=tokens, dtype=F64)
    for i, piece in enumerate(pieces):
        spelled = [
            sum(x[t, c] for t, c in enumerate(labels))
            for labels in itertools.product(range(3), repeat=5)
            if tokens.collapse(labels) == piece
        ]
        assert torch.allclose(layer(x)[0, i], torch.stack(spelled).logsumexp(0))


@pytest.mark.parametrize("tokens", [ag.tokens.Tokens.asg(3), ag.tokens.Tokens(3, blank="forced")])
def test_other_tokens_make_other_kernels(tokens):
    x = random(5, 3)
    layer = agt.ConvTransducer1d(3, [[1], [1, 2]], 5, tokens=tokens, dtype=F64)
    assert layer(x).isfinite().all()
    assert torch.allclose(layer(x), brute_force(layer, x))


def test_a_chain_is_an_ordinary_convolution():
    """A kernel of one path adds one channel per frame: a convolution with weights 0 and 1."""
    chains = list(itertools.product(range(3), repeat=2))
    kernels = [ag.chain_graph(chain) for chain in chains]
    layer = make(kernels, 2, 2, 1, 3)
    conv = nn.Conv1d(3, len(chains), 2, 2, 1, 3, dtype=F64)
    with torch.no_grad():
        conv.weight.zero_()
        for i, chain in enumerate(chains):
            for f, c in enumerate(chain):
                conv.weight[i, c, f] = 1.0
        conv.bias.copy_(layer.weight.view(-1, 2).sum(1))
    x = random(2, 9, 3)
    assert torch.allclose(layer(x), conv(x.transpose(1, 2)).transpose(1, 2))


def choice_kernel(channels, frames):
    """One frame takes any of the channels 1, 2, ..., the others take channel 0."""
    arcs = []
    for f in range(frames):
        arcs += [(f, f + 1, 0), (frames + 1 + f, frames + 2 + f, 0)]
        arcs += [(f, frames + 2 + f, c) for c in range(1, channels)]
    src, dst, label = zip(*arcs, strict=True)
    return ag.Graph.from_arrays(src, dst, label, start=[0], accept=[2 * frames + 1])


def test_a_choice_of_frame_and_channel_is_a_convolution_in_the_log_domain():
    channels, frames = 4, 3
    kernel = choice_kernel(channels, frames)
    layer = agt.ConvTransducer1d(channels, [kernel] * 2, frames, 2, dtype=F64)
    taken = torch.tensor(kernel.olabels() > 0)
    weight = random(2, frames, channels - 1)
    with torch.no_grad():
        layer.weight.view(2, -1)[:, taken] = weight.flatten(1)
    x = random(2, 8, channels)
    x[..., 0] = 0.0
    conv = nn.functional.conv1d(x[..., 1:].transpose(1, 2).exp(), weight.mT.exp(), stride=2)
    assert torch.allclose(layer(x), conv.log().transpose(1, 2))


def test_a_kernel_of_one_frame_is_a_matrix_product_in_the_log_domain():
    loop = ag.Graph.from_arrays([0] * 3, [1] * 3, [0, 1, 2], start=[0], accept=[1])
    layer = make([loop] * 5, 1)
    x = random(2, 4, 3)
    product = x.exp() @ layer.weight.view(5, 3).exp().T
    assert torch.allclose(layer(x), product.log())


# Gradients


@pytest.mark.parametrize("viterbi", [False, True])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 1, 2)])
def test_derivatives(stride, padding, dilation, viterbi):
    layer = make(PIECES, 3, stride, padding, dilation, viterbi=viterbi)
    x, weight = random(2, 5, 3).requires_grad_(), layer.weight
    score = as_function(layer, lengths=[5, 4])
    assert gradcheck(score, (x, weight))
    assert gradgradcheck(score, (x, weight))


@pytest.mark.parametrize("normalize", ["none", "pre", "post"])
def test_derivatives_with_options(normalize):
    layer = make(PIECES, 3, 2, 1, scale="sqrt", normalize=normalize, floor=-3.0)
    score = as_function(layer)
    assert gradcheck(score, (random(1, 3, 3).requires_grad_(), layer.weight))
    assert gradgradcheck(lambda x: score(x, layer.weight), random(1, 3, 3).requires_grad_())


def test_only_inputs_with_requires_grad_get_gradients():
    x = random(2, 5, 3).requires_grad_()
    fixed = agt.ConvTransducer1d(3, PIECES, 3, learn=False, dtype=F64)
    assert not list(fixed.parameters())
    assert "weight" in fixed.state_dict()
    fixed(x).sum().backward()
    assert x.grad is not None
    layer = make()
    layer(x.detach()).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        assert not layer(x).requires_grad


@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")  # of torch 2.4
def test_layers_in_a_row_with_checkpoints():
    first = make(PIECES, 3, 1, 1)
    second = agt.ConvTransducer1d(4, [[1], [2, 3]], 3, 2, dtype=F64)
    x = random(2, 8, 3).requires_grad_()

    def network(x):
        return second(first(x).tanh())

    def checked(x):
        hidden = checkpoint(first, x, use_reentrant=False)
        return checkpoint(lambda h: second(h.tanh()), hidden, use_reentrant=False)

    inputs = (x, first.weight, second.weight)
    expected = torch.autograd.grad(network(x).square().sum(), inputs)
    found = torch.autograd.grad(checked(x).square().sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert gradgradcheck(network, x)


def test_calls_do_not_share_state():
    layer = make()
    one, two = random(1, 5, 3).requires_grad_(), random(1, 6, 3, seed=1).requires_grad_()
    a, b = layer(one), layer(two)
    (b.sum() + 2 * a.sum()).backward()
    alone = random(1, 5, 3).requires_grad_()
    (2 * layer(alone).sum()).backward()
    assert torch.equal(one.grad, alone.grad)


def test_the_layer_learns():
    torch.manual_seed(0)
    layer = agt.ConvTransducer1d(3, PIECES, 3)
    target = make(dtype=torch.float32)
    x = random(4, 12, 3, dtype=torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), 0.1)

    def loss():
        return (layer(x) - target(x).detach()).square().mean()

    before = loss().item()
    for _ in range(30):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < before / 10


# Kernels that accept nothing


def short_kernel():
    """A kernel of exactly two frames."""
    return ag.chain_graph([1, 2])


@pytest.mark.parametrize("viterbi", [False, True])
def test_a_kernel_that_accepts_nothing_is_impossible_and_gets_no_gradient(viterbi):
    layer = make([short_kernel(), ag.tokens.ctc_graph([1])], 3, viterbi=viterbi)
    x = random(2, 6, 3)
    x[0, 0, :2] = -math.inf
    x.requires_grad_()
    out = layer(x)
    assert (out[..., 0] == -math.inf).all()
    assert (out[..., 1] == -math.inf).nonzero().tolist() == [[0, 0]]
    out.backward(torch.ones_like(out))
    assert (layer.weight.grad[:2] == 0).all()
    assert x.grad.isfinite().all()
    assert layer.weight.grad.isfinite().all()
    assert x.grad.sum() == pytest.approx(3 * 7)  # one arc per frame of every window but one


def test_a_floor_is_finite():
    layer = make([short_kernel(), ag.tokens.ctc_graph([1])], 3, floor=-1e4)
    x = random(2, 6, 3).requires_grad_()
    out = layer(x)
    assert (out[..., 0] == -1e4).all()
    assert out[..., 1].min() > -100
    assert gradcheck(as_function(layer), (x, layer.weight))


@pytest.mark.parametrize("pieces", [{"ab": [1, 2], "abab": [1, 2, 1, 2]}, {"bb": [2, 2, 2]}])
def test_a_piece_that_does_not_fit_is_refused_by_name(pieces):
    longest = max(pieces, key=len)
    with pytest.raises(ValueError, match=rf"fit into 3 frames.* but kernel '{longest}' needs [45]"):
        agt.ConvTransducer1d(3, pieces, 3)
    number = len(pieces) - 1
    with pytest.raises(ValueError, match=rf"but kernel {number}, \[.*\], needs [45]"):
        agt.ConvTransducer1d(3, list(pieces.values()), 3)
    with pytest.raises(ValueError, match=rf"but kernel {number} needs [45]"):
        agt.ConvTransducer1d(3, [ag.tokens.ctc_graph(p) for p in pieces.values()], 3)


def test_forced_blanks_need_room():
    tokens = ag.tokens.Tokens(3, blank="forced")
    with pytest.raises(ValueError, match="but kernel 'ab' needs 5"):
        agt.ConvTransducer1d(3, {"ab": [1, 2]}, 4, tokens=tokens)
