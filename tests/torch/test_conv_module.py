"""The convolution with graphs as a module: shapes, types, options, parameters and errors."""

import copy
import doctest
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from conv_layers import PIECES, make
from torch import nn
from torch_cases import F64, random

import arcgrad as ag
import arcgrad.torch as agt

pytestmark = pytest.mark.usefixtures("one_torch_thread")


# Shapes, lengths and types


@pytest.mark.parametrize("kernel_size", [3, (5,)])
@pytest.mark.parametrize("stride", [1, (4,)])
@pytest.mark.parametrize("padding", [0, 2, (5,), "valid", "same"])
@pytest.mark.parametrize("dilation", [1, (2,)])
def test_shapes_equal_a_convolution(kernel_size, stride, padding, dilation):
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
    # A frame of padding has the probability 1/3 for each of three labels.
    uniform = nn.functional.pad(x.log_softmax(-1), (0, 0, 1, 1), value=-math.log(3))
    assert torch.allclose(layer(x), make(PIECES, 3)(uniform).exp())


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


def test_repr_of_a_layer_shows_its_options():
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
        ({"dilation": True}, "dilation must be a whole number of 1 or more, but it is True"),
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


def test_labels_of_pieces_are_whole_numbers():
    with pytest.raises(TypeError, match="element 0 of kernels must be a whole number, but it is 1"):
        agt.ConvTransducer1d(3, [[1.7]], 3)
