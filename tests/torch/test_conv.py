"""The convolution with graphs for kernels, against its definition and against convolutions."""

import copy
import doctest
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

import arcgrad as ag
import arcgrad.torch as agt

pytestmark = pytest.mark.usefixtures("one_torch_thread")

F64 = torch.float64
PIECES = {"a": [1], "ab": [1, 2], "bb": [2, 2], "": []}


def random(*shape, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


def make(kernels=PIECES, kernel_size=3, *args, dtype=F64, seed=7, **options):
    layer = agt.ConvTransducer1d(3, kernels, kernel_size, *args, dtype=dtype, **options)
    with torch.no_grad():
        layer.weight.copy_(random(len(layer.weight), seed=seed))
    return layer


def as_function(layer, **options):
    """The layer as a function of the input and the weights."""
    return lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, x, options)


def path_scores(kernel, window):
    """The score of every accepted path of a kernel over the frames of a window, by walking it."""
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


# Shapes, lengths and types


@pytest.mark.parametrize("kernel_size", [3, (5,)])
@pytest.mark.parametrize("stride", [1, (4,)])
@pytest.mark.parametrize("padding", [0, 2, (5,), "valid", "same"])
@pytest.mark.parametrize("dilation", [1, (2,)])
def test_shapes_are_those_of_a_convolution(kernel_size, stride, padding, dilation):
    geometry = (kernel_size, stride, padding, dilation)
    if padding == "same" and stride != 1:
        with pytest.raises(ValueError, match="padding 'same' is for a stride of 1, but"):
            agt.ConvTransducer1d(3, PIECES, *geometry)
        return
    layer, conv = agt.ConvTransducer1d(3, PIECES, *geometry), nn.Conv1d(3, 4, *geometry)
    for frames in (9, 10, 13):
        x = torch.zeros(2, frames, 3)
        expected = conv(x.transpose(1, 2)).transpose(1, 2).shape
        assert layer(x).shape == expected
        assert layer.output_lengths(frames) == expected[1]
        assert layer(x[0]).shape == expected[1:]


@pytest.mark.parametrize("lengths", [[9, 4, 0], torch.tensor([9, 4, 0]), np.array([9, 4, 0])])
@pytest.mark.parametrize("options", [{}, {"viterbi": True}, {"normalize": "pre"}, {"floor": -1.0}])
def test_an_example_does_not_depend_on_its_batch(lengths, options):
    layer = make(PIECES, 3, 2, 1, **options)
    x = random(3, 9, 3)
    x[1, 4:] = math.nan
    x[2] = math.inf
    x.requires_grad_()
    out = layer(x, lengths)
    sizes = layer.output_lengths(lengths)
    assert sizes.tolist() == [5, 2, 0]
    alone = random(3, 9, 3).requires_grad_()
    for b, (length, size) in enumerate(zip([9, 4, 0], sizes, strict=True)):
        if size:
            assert torch.equal(out[b, :size], layer(alone[b : b + 1, :length])[0])
        assert (out[b, size:] == 0).all()
    out.square().sum().backward()
    sum(layer(alone[b : b + 1, :n]).square().sum() for b, n in ((0, 9), (1, 4))).backward()
    assert torch.equal(x.grad, alone.grad)


def test_one_example_may_have_a_length():
    layer, x = make(PIECES, 3, 2, 1), random(9, 3)
    assert torch.equal(layer(x, 4), layer(x[None], [4])[0])


def test_time_may_come_first():
    layer, turned = make(PIECES, 3, 2, 1), make(PIECES, 3, 2, 1, batch_first=False)
    x = random(2, 7, 3)
    assert torch.equal(turned(x.transpose(0, 1), [7, 4]).transpose(0, 1), layer(x, [7, 4]))


def test_strided_input_and_single_precision():
    layer, wide = make(dtype=torch.float32), make()
    wide.load_state_dict(layer.state_dict())
    x = random(2, 3, 14, dtype=torch.float32).transpose(1, 2)[:, ::2].requires_grad_()
    out = layer(x)
    assert out.dtype is torch.float32
    expected = wide(x.double())
    assert torch.allclose(out.double(), expected, atol=1e-5)
    found = torch.autograd.grad(out.square().sum(), (x, layer.weight))
    truth = torch.autograd.grad(expected.square().sum(), (x, wide.weight))
    for one, other in zip(found, truth, strict=True):
        assert torch.allclose(one.double(), other.double(), atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_input_gives_half_precision_output(dtype):
    layer = agt.ConvTransducer1d(3, PIECES, 3)
    x = random(2, 5, 3, dtype=torch.float32).to(dtype).requires_grad_()
    out = layer(x)
    assert out.dtype is dtype
    out.sum().backward()
    assert x.grad.dtype is dtype


def test_long_windows_equal_scores_of_products():
    """Windows with more frames than the fused loops for short windows support."""
    layer = make([[1, 2] * 8, [2]], 40, 10, 0, 2)
    x = random(1, 105, 3).requires_grad_()
    out = layer(x)
    kernels = [agt.graph(k, w) for k, w in zip(layer._kernels, split_weight(layer), strict=True)]
    rows = []
    for t in range(0, 105 - 78, 10):
        window = agt.emissions(x[0, t : t + 79 : 2])
        rows.append(agt.tensor(ag.forward_score(ag.compose(kernels, window))))
    assert torch.allclose(out[0], torch.stack(rows))
    found = torch.autograd.grad(out.sin().sum(), (x, layer.weight))
    truth = torch.autograd.grad(torch.stack(rows).sin().sum(), (x, layer.weight))
    for one, other in zip(found, truth, strict=True):
        assert torch.allclose(one, other)


def split_weight(layer):
    return layer.weight.split([kernel.num_arcs() for kernel in layer._kernels])


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


# Options


def test_scores_are_scaled_and_normalized():
    x = random(2, 6, 3)
    plain = make()(x)
    assert torch.allclose(make(scale="sqrt")(x), plain / math.sqrt(3))
    assert torch.allclose(make(scale="linear")(x), plain / 3)
    assert torch.allclose(make(normalize="post", scale="sqrt")(x), (plain / 3**0.5).softmax(-1))
    pre = make(normalize="pre")(x)
    assert torch.allclose(pre, make()(x.log_softmax(-1)).exp())
    # Probabilities of strings: without weights no piece has more than 1.
    free = agt.ConvTransducer1d(3, PIECES, 3, normalize="pre", dtype=F64)(x)
    assert (free <= 1).all()


def test_padding_is_normalized_as_zeros():
    x = random(1, 4, 3)
    layer = make(PIECES, 3, 1, 1, normalize="pre")
    padded = nn.functional.pad(x, (0, 0, 1, 1))
    assert torch.allclose(layer(x), make(PIECES, 3, normalize="pre")(padded))


# Parameters and their state


def paper_pieces():
    """200 pieces of 410 letters in all, two of them with a letter twice in a row."""
    pieces = [[1 + i % 78, 1 + (i + 1) % 78] for i in range(188)]
    pieces += [[1 + i, 2 + i, 3 + i] for i in range(10)]
    return [*pieces, [5, 5], [7, 7]]


def test_there_are_as_many_parameters_as_in_the_paper():
    pieces = paper_pieces()
    assert (len(pieces), sum(map(len, pieces))) == (200, 410)
    layer = agt.ConvTransducer1d(79, pieces, 5, 4, 2)
    assert sum(p.numel() for p in layer.parameters()) == 2048


def test_weights_are_in_the_order_of_kernels_and_arcs():
    layer = make()
    weights = [kernel.weights_to_list() for kernel in layer.kernels()]
    assert list(itertools.chain(*weights)) == layer.weight.tolist()
    expected = ag.tokens.alignment_graph(ag.tokens.Tokens.ctc(3), list(PIECES.values()))
    for kernel, truth in zip(layer.kernels(), expected, strict=True):
        assert [c.tolist() for c in kernel.arcs()[:4]] == [c.tolist() for c in truth.arcs()[:4]]


def test_state_belongs_to_its_kernels():
    layer, other = make(), make(seed=1)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)
    swapped = make({"ab": [1, 2], "a": [1], "bb": [2, 2], "": []})
    assert swapped.weight.shape == layer.weight.shape
    with pytest.raises(RuntimeError, match="ConvTransducer1d: parameters are in the order of arcs"):
        swapped.load_state_dict(layer.state_dict())


def test_layers_can_be_copied_and_pickled():
    layer = make(PIECES, 3, 2, 1, scale="sqrt", floor=-10.0)
    x = random(2, 6, 3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert other.weight is not layer.weight
        assert repr(other) == repr(layer)


def test_a_layer_prints_what_it_is():
    layer = make(PIECES, 3, 2, "valid", viterbi=True, learn=False)
    assert repr(layer) == (
        "ConvTransducer1d(3, 4, kernel_size=3, stride=2, padding='valid', learn=False, "
        "viterbi=True, arcs=25)"
    )


def test_distributed_training(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        layer = make(dtype=torch.float32)
        x = random(2, 5, 3, dtype=torch.float32)
        copied = copy.deepcopy(layer)
        parallel = nn.parallel.DistributedDataParallel(copied)
        parallel(x).sum().backward()
        # The group must not end with the module: that waits for gloo's threads under the lock of
        # the interpreter, for which they may wait.
        del parallel
        layer(x).sum().backward()
        assert torch.equal(copied.weight.grad, layer.weight.grad)
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # a warning of the compiler itself
def test_a_compiled_network_has_one_break():
    layer = make(PIECES, 3, 2, 1)

    def network(x):
        return layer(torch.sin(x), torch.tensor([6, 4])).square()

    x = random(2, 6, 3).requires_grad_()
    torch._dynamo.reset()
    assert torch._dynamo.explain(network)(x).graph_break_count == 1
    compiled = torch.compile(network, backend="aot_eager")
    assert torch.allclose(compiled(x), network(x))
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.allclose(found, torch.autograd.grad(network(x).sum(), x)[0])


def test_the_example_runs():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    (example, *_) = finder.find(agt.ConvTransducer1d, "ConvTransducer1d", globs={})
    assert runner.run(example).failed == 0
    assert example.examples


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be a whole number of 1 or more, but it is 0"),
        ({"stride": 0}, "stride must be a whole number of 1 or more, but it is 0"),
        ({"padding": -1}, "padding must be a whole number of 0 or more, but it is -1"),
        ({"dilation": 1.5}, "dilation must be a whole number of 1 or more, but it is 1.5"),
        ({"padding": "full"}, "padding must be one of 'valid', 'same', but it is 'full'"),
        ({"scale": "log"}, "scale must be one of 'none', 'sqrt', 'linear', but it is 'log'"),
        ({"normalize": "all"}, "normalize must be one of 'none', 'pre', 'post', but it is 'all'"),
        ({"kernels": []}, "there must be at least one kernel, but there is none"),
        ({"kernels": {"x": [3]}}, "piece 'x' has the label 3"),
        ({"kernels": {"x": [1, 0]}}, "not the blank, but piece 'x' has the label 0"),
        ({"kernels": [[-1]]}, r"piece 0, \[-1\], has the label -1"),
        ({"kernels": [ag.chain_graph([1, 5])]}, "labels must be below 3.* kernel 0 has the label"),
        (
            {"kernels": [[1], ag.chain_graph([1])]},
            "must be all graphs or all word pieces, but both",
        ),
        ({"tokens": ag.tokens.Tokens.ctc(4)}, "tokens must have 3 labels.* but they have 4"),
        (
            {"kernels": [ag.chain_graph([1])], "tokens": ag.tokens.Tokens.ctc(3)},
            "tokens are for a lexicon, but the kernels are graphs",
        ),
    ],
)
def test_options_are_checked(options, message):
    options = {"kernels": PIECES, "kernel_size": 3, **options}
    with pytest.raises(ValueError, match=f"ConvTransducer1d: .*{message}"):
        agt.ConvTransducer1d(3, **options)


def test_input_is_checked():
    layer = make()
    with pytest.raises(ValueError, match=r"\[T, C\] or \[B, T, C\] with C = 3, but .* \[2, 5, 4\]"):
        layer(torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match="at least 3 frames, but it has 2"):
        layer(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match="one length per example, 2 in all, but there are 1"):
        layer(torch.zeros(2, 5, 3), [5])
    with pytest.raises(ValueError, match=r"between 0 and 5, .*but they are \[5, 6\]"):
        layer(torch.zeros(2, 5, 3), [5, 6])
    with pytest.raises(ValueError, match=r"outer_score.*frame 1 is nan, but it must be finite"):
        layer(torch.full((1, 3, 3), math.nan).index_fill(1, torch.tensor([0]), 0.0))


def test_an_empty_batch_has_no_outputs():
    assert make(PIECES, 3, 2, 1)(torch.zeros(0, 7, 3)).shape == (0, 4, 4)
