"""Files as inputs: equal to training inputs, and the positions of outputs in them."""

import numpy as np
import pytest
import soundfile
import torch
import trees
from command_line import tiny
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from arcgrad.recipes import data
from arcgrad.recipes.data import (
    Input,
    LogMel,
    Pixels,
    dataset_input,
    digits,
    iam,
    input_features,
    letters,
    load_data,
    read_image,
    read_input,
)
from arcgrad.recipes.models import Grid, PlainConv2d, TDS1d, TDS2d, output_grid
from arcgrad.recipes.models.layers import conv_lengths


@pytest.mark.parametrize("task", ["lines", "words"])
def test_an_image_of_letters_gives_the_training_input(task, tmp_path):
    settings = tiny(f"data.task={task}")
    examples = load_data(settings).test
    for index in range(3):
        path = tmp_path / f"{index}.png"
        examples.image(index).save(path)
        found = read_input(input_features(settings), path)
        assert torch.equal(found.values, examples[index].input)
        assert torch.equal(dataset_input(examples, index).values, examples[index].input)


def test_an_image_of_iam_gives_the_training_input(tmp_path):
    tree = trees.iam(tmp_path / "iam")
    iam.prepare(tree)
    settings = tiny("data.corpus=iam", "data.train=none", "data.validation=none", "data.test=none")
    examples = iam.load(tree).test
    for index, name in enumerate(examples.ids):
        found = read_input(input_features(settings), tree / f"arcgrad/lines/{name}.png")
        assert torch.equal(found.values, examples[index].input)


def test_a_recording_of_digits_gives_the_training_input(tmp_path):
    settings = tiny("data.corpus=digits", "model.preset=small")
    examples = load_data(settings).test
    for index, ending in enumerate(("wav", "flac")):
        samples = examples.samples(index)
        path = tmp_path / f"said.{ending}"
        soundfile.write(path, np.round(samples * 32768).astype(np.int16), digits.RATE)
        found = read_input(input_features(settings), path)
        assert torch.equal(found.values, examples[index].input)
        assert found.unit == "seconds"
        assert found.extent == len(samples) / digits.RATE
        assert torch.equal(dataset_input(examples, index).values, examples[index].input)


def test_images_are_scaled_to_the_height_of_the_run():
    settings = tiny()
    assert input_features(settings, 32) == Pixels(32, *letters.NORMAL["lines"])
    assert input_features(tiny("data.corpus=wsj"), 40) == LogMel(rate=16000, num_filters=40)
    assert input_features(tiny("data.corpus=librispeech")) == LogMel()


def test_input_features_equal_the_features_of_the_corpus(tmp_path):
    whole = ("data.train=none", "data.validation=none", "data.test=none", "model.preset=small")
    for corpus, make in {"librispeech": trees.librispeech, "wsj": trees.wsj}.items():
        tree = make(tmp_path / corpus)
        module = getattr(data, corpus)
        module.prepare(tree)
        settings = tiny(f"data.corpus={corpus}", f"data.path={tree}", *whole)
        assert load_data(settings).test.features == input_features(settings)


def test_any_image_mode_is_converted_to_grey(tmp_path):
    grey = Image.fromarray(np.arange(0, 256, dtype=np.uint8).reshape(16, 16))
    clear = Image.new("RGBA", grey.size)  # black, but fully transparent
    clear.paste(grey.convert("RGBA"))
    deep = Image.fromarray(np.asarray(grey, np.uint16) * 257)
    for name, image in {
        "grey.png": grey,
        "rgb.png": grey.convert("RGB"),
        "rgba.png": clear,
        "deep.png": deep,
        "page.tif": grey,
        "deep.tif": deep,
    }.items():
        image.save(tmp_path / name)
        assert np.array_equal(read_image(tmp_path / name), grey)
    Image.new("LA", (4, 4)).save(tmp_path / "nothing.png")
    assert np.array_equal(read_image(tmp_path / "nothing.png"), Image.new("L", (4, 4), 255))
    turned = Image.Exif()
    turned[0x0112] = 6  # an EXIF orientation that rotates the image
    grey.crop((0, 0, 16, 4)).save(tmp_path / "turned.png", exif=turned)
    assert read_image(tmp_path / "turned.png").size == (4, 16)


def test_files_that_are_not_images_are_errors(tmp_path):
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"text\.png' must be an image, but reading it fails"):
        read_image(tmp_path / "text.png")
    whole = tmp_path / "whole.png"
    Image.effect_noise((64, 64), 50).save(whole)
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:900])
    with pytest.raises(ValueError, match=r"cut\.png' must be an image, but reading it fails"):
        read_image(tmp_path / "cut.png")
    with pytest.raises(ValueError, match=r"no\.png' must exist, but it is missing"):
        read_image(tmp_path / "no.png")


def test_the_error_for_another_sample_rate_suggests_a_conversion(tmp_path):
    soundfile.write(tmp_path / "said.wav", np.zeros(100), 44100)
    with pytest.raises(ValueError, match=r"it has 1 and 44100; convert it, .* -ac 1 -ar 8000"):
        read_input(LogMel(rate=8000), tmp_path / "said.wav")


@pytest.mark.parametrize("wrong", [(0, 0.5, 0.5), (16, 0.5, 0.0)])
def test_pixels_need_a_height_and_a_deviation(wrong):
    with pytest.raises(ValueError, match="the height and the deviation must be positive"):
        Pixels(*wrong)


def test_other_data_sets_have_no_input_reader():
    with pytest.raises(TypeError, match="expected images or speech, but got list"):
        dataset_input([], 0)


def test_positions_stay_inside():
    found = Input(torch.zeros(1, 10), "pixels", extent=30.0, first=1.5, step=3.0)
    assert [found.position(x) for x in (-3, 0, 4.5, 99)] == [0.0, 1.5, 15.0, 30.0]


class Stack(nn.Module):
    """Convolutions with positive weights: gradients show the receptive field of an output."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.convs = nn.ModuleList(nn.Conv1d(1, 1, k, s, p, bias=False) for k, s, p in layers)
        for conv in self.convs:
            nn.init.ones_(conv.weight)

    def output_lengths(self, lengths):
        for layer in self.layers:
            lengths = conv_lengths(lengths, *layer)
        return lengths

    def forward(self, x):
        for conv in self.convs:
            x = conv(x)
        return x


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 3)).filter(
            lambda layer: 2 * layer[2] < layer[0] or layer[0] == 1
        ),
        min_size=1,
        max_size=3,
    )
)
def test_outputs_are_centred_in_their_receptive_field(layers):
    layers = [(k, s, p if 2 * p < k else 0) for k, s, p in layers]
    network = Stack(layers)
    grid = output_grid(network)
    x = torch.zeros(1, 1, 301, requires_grad=True)
    out = network(x)
    index = out.shape[-1] // 2
    (gradient,) = torch.autograd.grad(out[0, 0, index], x)
    made_of = torch.nonzero(gradient[0, 0])[:, 0]
    assert (made_of[0] + made_of[-1]).item() / 2 == grid.first + grid.step * index


@pytest.mark.parametrize("subsampling", [4, 8, 16])
def test_the_grids_of_the_networks(subsampling):
    assert output_grid(PlainConv2d(16, 28)) == Grid(0.5, 2)
    assert output_grid(TDS1d.preset("paper", 80, 5, subsampling=subsampling)) == Grid(
        0.0, subsampling
    )
    assert output_grid(TDS2d.preset("paper", 64, 5, subsampling=subsampling)).step == subsampling


def test_uneven_outputs_have_no_grid():
    class Uneven(nn.Module):
        def output_lengths(self, lengths):
            return torch.sqrt(lengths.float()).long()

    with pytest.raises(ValueError, match="outputs must be equally spaced"):
        output_grid(Uneven())
