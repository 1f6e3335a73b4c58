"""The networks of the experiments: lengths, padding, parameters."""

import copy
import doctest
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import arcgrad.recipes.models as models
import arcgrad.torch as agt
from arcgrad.recipes.models import (
    ControlConv1d,
    MaskedInstanceNorm,
    PlainConv2d,
    TDS1d,
    TDS2d,
    TDS2dTransducer,
    TDSBlock,
    TDSGroup,
)
from arcgrad.recipes.models.layers import Dropout, convolve

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PIECES = ["a", "b", "ab", "ba", "aa"]


def count(module):
    return sum(p.numel() for p in module.parameters())


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shake(module):
    """Random weights everywhere, so that biases and affine maps matter."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator), alpha=0.1)
    return module.eval()


def networks():
    """A small network of every kind, and the shape of its input of T frames."""
    torch.manual_seed(0)
    groups = [TDSGroup(2, 1, (2, 2)), TDSGroup(3, 1, (2, 1))]
    return {
        "1d": (TDS1d(6, 5, [TDSGroup(2, 2, (2,)), TDSGroup(3, 1, (3,))]), lambda t: (t, 6)),
        "2d": (TDS2d(9, 5, groups, depth=2, kernel_size=(3, 5)), lambda t: (9, t)),
        "plain": (PlainConv2d(8, 5, channels=4), lambda t: (8, t)),
        "transducer": (
            TDS2dTransducer(
                8, 5, PIECES, groups[:1], groups[1:], depth=2, block_kernel_size=(3, 5)
            ),
            lambda t: (8, t),
        ),
        "control": (
            TDS2dTransducer(
                8, 5, PIECES, groups[:1], groups[1:], wfst=False, block_kernel_size=(3, 5)
            ),
            lambda t: (8, t),
        ),
    }


every_network = pytest.mark.parametrize("kind", ["1d", "2d", "plain", "transducer", "control"])


def frames_of(kind, x, length):
    return x[:length] if kind == "1d" else x[..., :length]


# Padding


@every_network
def test_valid_outputs_do_not_depend_on_padding(kind):
    network, shape = networks()[kind]
    shake(network)
    lengths = [47, 30, 23]
    x = torch.stack([random(*shape(47), seed=b) for b in range(3)])
    dirty = x.clone()
    for example, length in zip(dirty, lengths, strict=True):
        (example if kind == "1d" else example.T)[length:] = 1e3
    out, sizes = network(dirty, lengths)
    for b, length in enumerate(lengths):
        alone, size = network(frames_of(kind, x[b], length)[None])
        assert size.tolist() == [sizes[b]]
        assert alone.shape[1] == sizes[b]
        assert torch.allclose(out[b, : sizes[b]], alone[0], atol=1e-5)
    assert torch.equal(sizes, network.output_lengths(lengths))


@every_network
def test_gradients_do_not_depend_on_padding(kind):
    network, shape = networks()[kind]
    shake(network).double()
    x = random(1, *shape(40)).double()
    wide = nn.functional.pad(x, (0, 0, 0, 9) if kind == "1d" else (0, 9), value=5.0)
    wide.requires_grad_()
    found = []
    for batch, lengths in ((x, None), (wide, [40])):
        network.zero_grad()
        out, sizes = network(batch, lengths)
        out[:, : sizes[0]].square().sum().backward()
        found.append([p.grad.clone() for p in network.parameters()])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other)
    beyond = wide.grad[:, 40:] if kind == "1d" else wide.grad[..., 40:]
    assert (beyond == 0).all()


def test_ordinary_instance_norm_would_depend_on_padding():
    x = random(1, 3, 8, 5)
    wide = nn.functional.pad(x, (0, 5))
    ordinary = nn.functional.instance_norm(wide)[..., :5] - nn.functional.instance_norm(x)
    assert ordinary.abs().max() > 0.1
    mask = torch.arange(10)[None] < 5
    norm = MaskedInstanceNorm(3)
    assert torch.allclose(norm(wide, mask)[..., :5], nn.functional.instance_norm(x), atol=1e-5)


@pytest.mark.parametrize("dims", [1, 2])
def test_the_norm_equals_torch_without_padding(dims):
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d)[dims - 1]
    ours, theirs = MaskedInstanceNorm(4), kind(4, affine=True)
    shake(ours)
    theirs.load_state_dict(ours.state_dict())
    x = random(2, 4, *[6, 7][:dims]) * 3 + 1
    mask = torch.ones(2, x.shape[-1], dtype=torch.bool)
    assert torch.allclose(ours(x, mask), theirs(x), atol=1e-5)


def test_an_example_without_frames_is_zero():
    norm = MaskedInstanceNorm(2)
    x = random(2, 2, 4).requires_grad_()
    mask = torch.tensor([[True] * 4, [False] * 4])
    out = norm(x, mask)
    assert (out[1] == 0).all()
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_the_norm_has_first_and_second_derivatives():
    norm = shake(MaskedInstanceNorm(3).double())
    x = random(2, 3, 2, 4).double()
    mask = torch.arange(4) < torch.tensor([[4], [3]])
    for layout in (torch.contiguous_format, torch.channels_last):
        leaf = x.clone(memory_format=layout).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: norm(x, mask), leaf)
        assert torch.autograd.gradgradcheck(lambda x: norm(x, mask), leaf)


# Layouts


def contiguous(network, x, lengths):
    """TDS groups by torch's own layers, in the usual layout and for one example."""
    x = x[:1, None, :, : lengths[0]]
    for conv, norm, blocks in zip(
        network.groups.convs, network.groups.norms, network.groups.blocks, strict=True
    ):
        x = normal(norm, conv(x).relu())
        for block in blocks:
            folded = x.reshape(-1, block.channels, *x.shape[2:])
            x = normal(block.norms[0], x + block.conv(folded).relu().view(x.shape))
            x = normal(block.norms[1], x + block.mix(x))
    return network.output(x.flatten(1, 2).transpose(1, 2))


def normal(norm, x):
    return nn.functional.instance_norm(x, weight=norm.weight, bias=norm.bias, eps=norm.eps)


def test_the_layout_changes_no_result():
    network = shake(TDS2d.preset("small", 16, 5))
    x = random(2, 16, 60)
    out, sizes = network(x, [52, 60])
    expected = contiguous(network, x, [52])
    assert torch.allclose(out[:1, : sizes[0]], expected, atol=1e-4)
    plain = shake(PlainConv2d(8, 5, channels=4))
    x = random(2, 8, 30)
    assert torch.allclose(plain(x)[0], plain(x.transpose(1, 2).contiguous().mT)[0], atol=1e-6)
    assert convolve(plain.image[0], x[:, None]).is_contiguous(memory_format=torch.channels_last)


# Dropout


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_keeps_the_mean_and_drops_its_fraction(layout):
    x = torch.ones(4, 6, 50, 50).contiguous(memory_format=layout).requires_grad_()
    torch.manual_seed(0)
    out = Dropout(0.3)(x)
    dropped = out == 0
    assert abs(dropped.float().mean() - 0.3) < 0.01
    assert abs(out.mean() - 1) < 0.01
    out.sum().backward()
    assert torch.equal(x.grad, out)
    torch.manual_seed(0)
    assert torch.equal(Dropout(0.3)(x), out)
    assert not torch.equal(Dropout(0.3)(x), out)
    # Adjacent elements come from the same 64 random bits.
    flat = dropped.permute(0, 2, 3, 1).flatten().float() - 0.3
    assert all(abs((flat[k:] * flat[:-k]).mean()) < 0.01 for k in (1, 2, 3, 4))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything(p):
    assert torch.equal(Dropout(p)(torch.ones(9)), torch.full((9,), 1 - p))


# Lengths


@pytest.mark.parametrize("subsampling", [4, 8, 16, 24])
@pytest.mark.parametrize("name", ["paper", "recipe", "small"])
def test_lengths_are_exact_at_every_subsampling(name, subsampling):
    with torch.device("meta"):  # shapes alone
        image = TDS2d.preset(name, 64, 5, subsampling=subsampling)
        lengths = [97, 200]
        if name != "small":
            speech = TDS1d.preset(name, 4, 5, subsampling=subsampling)
            assert [speech.groups.output_size(n, 0) for n in (96, 193)] == [
                -(-96 // subsampling),
                -(-193 // subsampling),
            ]
    for width in lengths:
        x = torch.zeros(1, 1, 64, width, device="meta")
        for conv in image.groups.convs:
            x = conv(x)
        assert image.output_lengths(width).item() == x.shape[-1] == -(-width // subsampling)
        assert image.inner_height == x.shape[-2]


def test_the_transducer_subsamples_sixteen_times():
    network = TDS2dTransducer.preset("small", 16, 5, PIECES)
    assert network.output_lengths([160, 161, 16]).tolist() == [10, 11, 1]


def test_all_frames_are_the_default():
    for kind, (network, shape) in networks().items():
        network.eval()
        x = random(2, *shape(32))
        out, sizes = network(x)
        again, _ = network(x, [32, 32])
        assert torch.equal(out, again), kind
        assert sizes.tolist() == [out.shape[1]] * 2


# Parameters


def test_numbers_of_parameters_of_table_3():
    """200 word pieces of 410 letters, two of which repeat a letter; 78 letters and a blank."""
    letters = [chr(ord("0") + i) for i in range(78)]
    pieces = [letters[i % 78] + letters[(i * 7 + 1 + i // 78) % 78] for i in range(300)]
    pieces = list(dict.fromkeys(p for p in pieces if p[0] != p[1]))[:188]
    pieces += ["".join(letters[i : i + 3]) for i in range(10)] + ["00", "11"]
    assert (len(set(pieces)), sum(map(len, pieces))) == (200, 410)
    options = {"letters": letters, "dropout": 0.0}
    network = TDS2dTransducer.preset("paper", 64, 1000, pieces, **options)
    assert isinstance(network.conv, agt.ConvTransducer1d)
    assert network.conv.stride == 4
    assert network.conv.kernel_size == 5
    assert count(network.conv) == 2048
    control = TDS2dTransducer.preset("paper", 64, 1000, pieces, wfst=False, **options)
    assert isinstance(control.conv, ControlConv1d)
    assert count(control.conv) == 79_000
    assert count(network) - count(control) == 2048 - 79_000


def test_widths_equal_the_paper_and_the_recipe():
    with torch.device("meta"):
        for name, widths in (("paper", [8, 16, 32, 64]), ("recipe", [16, 64, 128, 256])):
            network = TDS2d.preset(name, 64, 80)
            assert [conv.out_channels for conv in network.groups.convs] == widths
            assert [len(blocks) for blocks in network.groups.blocks] == [3] * 4
            assert {conv.kernel_size for conv in network.groups.convs} == {(5, 7)}
            assert [block[0].conv.kernel_size for block in network.groups.blocks] == [(5, 7)] * 4
        speech = TDS1d.preset("paper", 80, 1000)
        assert [conv.out_channels for conv in speech.groups.convs] == [320, 640, 1280]
        assert [len(blocks) for blocks in speech.groups.blocks] == [5] * 3
        assert [block[0].channels for block in speech.groups.blocks] == [4, 8, 16]
        assert speech.groups.strides == [(2,)] * 3


def test_a_block_has_the_parameters_of_its_layers():
    block = TDSBlock(3, 4, (5, 7))
    conv, mix, norms = 3 * 3 * 5 * 7 + 3, 2 * (12 * 12 + 12), 2 * 2 * 12
    assert count(block) == conv + mix + norms


def test_a_block_is_a_convolution_with_a_further_dimension():
    """The 1 x k_h x k_w convolution of the paper on channels, depth, height and width."""
    block = shake(TDSBlock(3, 4, (5, 7)))
    block.norms = nn.ModuleList([Plain(), Plain()])
    for mixing in (block.mix[0], block.mix[3]):
        nn.init.zeros_(mixing.weight)
        nn.init.zeros_(mixing.bias)
    x = random(2, 12, 6, 9)
    cube = x.view(2, 4, 3, 6, 9).transpose(1, 2)
    weight = block.conv.weight[:, :, None]
    conv = nn.functional.conv3d(cube, weight, block.conv.bias, padding=(0, 2, 3)).relu()
    expected = x + conv.transpose(1, 2).reshape(x.shape)
    assert torch.allclose(block(x, torch.ones(2, 9, dtype=torch.bool)), expected, atol=1e-5)


class Plain(nn.Module):
    def forward(self, x, mask):
        return x


def test_small_networks_are_small():
    assert 0.25e6 < count(TDS2d.preset("small", 16, 80)) < 0.35e6
    assert 0.2e6 < count(TDS1d.preset("small", 80, 80)) < 0.35e6


def test_the_small_network_learns():
    """The network learns to tell which of two rows is bright in each column."""
    torch.manual_seed(0)
    network = TDS2d.preset("small", 16, 2, dropout=0.0)
    labels = torch.randint(0, 2, (4, 12), generator=torch.Generator().manual_seed(3))
    x = torch.zeros(4, 16, 48)
    x[:, 4] = labels.repeat_interleave(4, 1).float()
    x[:, 12] = 1 - x[:, 4]
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(12):
        out, _ = network(x)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (out.argmax(-1) == labels).float().mean() > 0.95


# Copying, pickling, compiling and modes of modules


@every_network
def test_networks_can_be_copied_and_pickled(kind):
    network, shape = networks()[kind]
    network.eval()
    x = random(2, *shape(24))
    expected, _ = network(x, [24, 19])
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(other(x, [24, 19])[0], expected)
    fresh, _ = networks()[kind]
    fresh.load_state_dict(network.state_dict())
    assert torch.equal(fresh.eval()(x, [24, 19])[0], expected)


@every_network
@pytest.mark.filterwarnings("ignore")  # a warning of the compiler itself
def test_networks_can_be_compiled(kind):
    network, shape = networks()[kind]
    network.eval()
    x, lengths = random(2, *shape(24)), torch.tensor([24, 19])
    torch._dynamo.reset()
    # The other networks add only layers of torch, so one of them goes through its autograd too.
    backend = "aot_eager" if kind == "plain" else "eager"
    compiled = torch.compile(
        network, fullgraph=kind != "transducer", backend=backend, dynamic=False
    )
    (found, sizes), (expected, _) = compiled(x, lengths), network(x, lengths)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.equal(sizes, network.output_lengths(lengths))
    parameters = list(network.parameters())
    grads = torch.autograd.grad(found.square().sum(), parameters)
    for one, other in zip(
        grads, torch.autograd.grad(expected.square().sum(), parameters), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-3 * max(1.0, other.abs().max().item()))


def test_dropout_is_only_for_training():
    network, shape = networks()["2d"]
    x = random(1, *shape(24))
    assert not torch.equal(network(x)[0], network(x)[0])
    network.eval()
    assert torch.equal(network(x)[0], network(x)[0])


def test_letters_of_the_transducer_are_in_order():
    network = TDS2dTransducer.preset("small", 16, 5, ["b", "ac"])
    assert network.letters == ["a", "b", "c"]
    assert network.conv.in_channels == 4
    assert sorted(set(network.conv.kernels()[0].olabels().tolist())) == [0, 2]
    wide = TDS2dTransducer.preset("small", 16, 5, ["b"], letters="xyb")
    assert sorted(set(wide.conv.kernels()[0].olabels().tolist())) == [0, 3]


def test_the_published_transducer_has_other_options():
    network = TDS2dTransducer.preset("recipe", 64, 5, PIECES)
    assert (network.conv.kernel_size, network.conv.scale) == (7, "sqrt")
    assert not network.conv.learn
    learned = TDS2dTransducer.preset("recipe", 64, 5, PIECES, learn=True)
    assert learned.conv.learn


def test_the_control_is_a_convolution():
    layer = ControlConv1d(3, 4, 5, 2, 2, 1)
    x = random(2, 9, 3)
    assert torch.equal(layer(x), layer.conv(x.transpose(1, 2)).transpose(1, 2))
    out = layer(x, [9, 6])
    assert torch.allclose(out[1, :3], layer(x[1:, :6])[0], atol=1e-6)
    assert (out[1, 3:] == 0).all()
    assert layer.output_lengths([9, 6]).tolist() == [5, 3]


@pytest.mark.parametrize("name", models.__all__)
def test_examples_run(name):
    finder = doctest.DocTestFinder(recurse=True)
    examples = [e for e in finder.find(getattr(models, name), name, globs={}) if e.examples]
    assert examples, f"{name} has no example"
    for example in examples:
        assert doctest.DocTestRunner().run(example).failed == 0


def test_a_missing_dependency_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
try:
    import arcgrad.recipes.models
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'arcgrad[recipes]'" in done.stdout


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TDS2d.preset("big", 16, 5), "TDS2d: the preset must be one of 'paper', 'recipe'"),
        (lambda: TDS1d.preset("big", 16, 5), "TDS1d: the preset must be one of .* it is 'big'"),
        (lambda: PlainConv2d(6, 5), "PlainConv2d: the height must be a multiple of 4, but it is 6"),
        (
            lambda: TDS2d.preset("paper", 64, 5, subsampling=5),
            "must be one of 2, 4, 8, 16, 24, but",
        ),
        (lambda: TDS2dTransducer.preset("big", 16, 5, PIECES), "TDS2dTransducer: the preset must"),
        (
            lambda: TDS2dTransducer.preset("small", 16, 5, PIECES, wfst=False, stride=0),
            "TDS2dTransducer: the stride must be at least 1, but it is 0",
        ),
        (lambda: TDSBlock(1, 1, (4, 5)), r"TDSBlock: kernel sizes must be odd, but .* \(4, 5\)"),
        (lambda: TDS1d(3, 4, []), r"TDS1d: there must be groups with strides in 1 dim.* are \[\]"),
        (lambda: TDS2d(8, 4, [TDSGroup(1, 1, (2,))]), "strides in 2 dimensions, but the groups"),
        (lambda: networks()["1d"][0](torch.zeros(1, 9, 5)), r"\[B, T, 6\], but its shape"),
        (lambda: networks()["2d"][0](torch.zeros(1, 8, 9)), r"\[B, 1, 9, W\], but its shape"),
        (lambda: networks()["2d"][0](torch.zeros(2, 9, 9), [9]), "one length per example, 2 in"),
        (lambda: networks()["2d"][0](torch.zeros(1, 9, 9), [10]), r"between 0 and 9, .* \[10\]"),
        (
            lambda: TDS2dTransducer.preset("small", 16, 5, PIECES, wfst=False, learn=False),
            "must not have further options, but wfst is False and there are learn",
        ),
        (
            lambda: TDS2dTransducer.preset("small", 16, 5, ["ab"], letters="a"),
            "Lexicon: .*'ab'.*'b'",
        ),
        (
            lambda: TDS2dTransducer.preset("small", 16, 5, ["aabbcc"]),
            "kernel must fit into 5 frames.* but kernel 'aabbcc' needs 9",
        ),
    ],
)
def test_errors_name_the_invalid_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
