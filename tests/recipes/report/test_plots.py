"""Pictures of alignments, and images as text."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.figure import Figure

from arcgrad.recipes.report.plots import MOST_LABELS, blocks, plot_alignment
from arcgrad.torch import TokenSpan, forced_align

TOKENS = ["blank", "a", "b", "c"]
FRAMES = [0, 1, 1, 0, 2]
EMISSIONS = 9 * torch.eye(4)[torch.tensor(FRAMES)]


def names(figure):
    """The names of the labels that are drawn."""
    return [text.get_text() for text in figure.axes[-2].get_yticklabels()]


def strokes(figure):
    """The row and the ends of each horizontal line of the drawn path."""
    heat = figure.axes[-2]
    (lines,) = (c for c in heat.collections if len(c.get_segments()))
    return [(y, x, end) for (x, y), (end, _) in lines.get_segments()]


def test_a_path_by_frames_is_drawn_where_it_lies():
    figure = plot_alignment(EMISSIONS, FRAMES, tokens=TOKENS)
    assert isinstance(figure, Figure)
    assert names(figure) == ["blank", "a", "b"]  # c is neither likely nor on the path
    expected = [(0.5, 0.1, 0.9), (1.5, 1.1, 2.9), (0.5, 3.1, 3.9), (2.5, 4.1, 4.9)]
    assert np.allclose(strokes(figure), expected)


def test_a_path_of_spans_is_drawn_where_it_lies():
    spans = forced_align(EMISSIONS.log_softmax(-1), [[1, 2]])[0]
    figure = plot_alignment(EMISSIONS, spans)
    assert names(figure) == ["0", "1", "2"]
    assert np.allclose(strokes(figure), [(1.5, 1.1, 2.9), (2.5, 4.1, 4.9)])


def test_heat_is_the_probability_of_labels():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    (image,) = plot_alignment(x, [0, 1, 2, 2, 1, 0]).axes[0].images
    assert np.allclose(image.get_array(), x.softmax(-1).numpy().T)


def test_an_image_is_drawn_above_its_frames():
    figure = plot_alignment(EMISSIONS, FRAMES, image=torch.rand(4, 20), title="a")
    above, heat = figure.axes[:2]
    assert above.images[0].get_extent()[:2] == heat.images[0].get_extent()[:2] == [0, 5]
    assert figure.get_suptitle() == "a"


def test_a_figure_can_be_an_argument():
    figure = Figure(figsize=(6, 4))
    left, right = figure.subfigures(1, 2)
    assert plot_alignment(EMISSIONS, FRAMES, figure=left) is left
    plot_alignment(EMISSIONS, [], figure=right)
    figure.savefig(io.BytesIO(), format="png")
    assert len(left.axes) == len(right.axes) == 2


@pytest.mark.parametrize(
    ("emissions", "path"),
    [
        (torch.zeros(1, 1), [0]),
        (torch.zeros(3, 500), []),  # nothing is likely
        (torch.full((2, 3), -torch.inf), [0, 1]),  # nothing is possible
        (1e30 * torch.eye(3), [0, 1, 2]),
        (EMISSIONS.requires_grad_(), []),
        (np.eye(3), [TokenSpan(1, 0, 3, 0.0)]),
    ],
)
def test_any_emissions_are_drawn(emissions, path):
    file = io.BytesIO()
    plot_alignment(emissions, path).savefig(file, format="svg")
    assert b"</svg>" in file.getvalue()


def test_names_are_not_parsed_as_mathematics():
    figure = plot_alignment(torch.eye(2), [0, 1], tokens=["$", "$_{$"], title="$a_{$ costs $1")
    figure.savefig(io.BytesIO(), format="svg")
    assert names(figure) == ["$", "$_{$"]


def test_only_a_few_of_many_labels_are_drawn():
    x = torch.zeros(200, 200)
    x[torch.arange(200), torch.arange(200)] = 20.0
    assert len(names(plot_alignment(x, []))) == MOST_LABELS
    assert len(names(plot_alignment(x, list(range(200))))) == 200  # a path is drawn whole


@pytest.mark.parametrize(
    ("emissions", "path", "tokens", "message"),
    [
        (torch.zeros(3), [], None, r"must have the shape \[T, C\] .*, but their shape is \[3\]"),
        (torch.zeros(0, 3), [], None, r"their shape is \[0, 3\]"),
        (torch.zeros(2, 3), [0, 1], ["a"], "there are 3 labels and 1 tokens"),
        (torch.zeros(2, 3), [0], None, "must have 2 labels, one for each frame, but it has 1"),
        (torch.zeros(2, 3), [0, 3], None, "but label 3 lies from 1 to 2"),
        (torch.zeros(2, 3), [TokenSpan(1, 1, 3, 0.0)], None, "but label 1 lies from 1 to 3"),
        (torch.zeros(2, 3), [TokenSpan(-1, 0, 1, 0.0)], None, "but label -1 lies from 0 to 1"),
    ],
)
def test_alignments_that_do_not_fit_are_errors(emissions, path, tokens, message):
    with pytest.raises(ValueError, match=f"plot_alignment: .*{message}"):
        plot_alignment(emissions, path, tokens=tokens)


def read_blocks(text, height):
    """The ink of an image that was written as text, without empty columns at its end."""
    parts = []
    for part in text.split("\n\n"):
        rows = part.split("\n")
        assert len(rows) == height // 2
        width = max(map(len, rows))
        halves = np.array([[" ▀▄█".index(c) for c in row.ljust(width)] for row in rows])
        ink = np.zeros((height, width), bool)
        ink[0::2], ink[1::2] = halves & 1, halves >> 1
        parts.append(ink)
    return parts


@given(hnp.arrays(bool, st.tuples(st.just(6), st.integers(1, 30))), st.integers(1, 12))
def test_blocks_have_the_ink_of_the_image(ink, width):
    ink[0, -1], ink[1, -1] = True, False  # no ink is lost at the end, and there is some white
    # Parts are separated by empty lines, so no row may be empty.
    ink[0], ink[2], ink[4] = ink[0] | True, ink[2] | True, ink[4] | True
    parts = read_blocks(blocks(~ink, width, height=6), 6)
    assert max(part.shape[1] for part in parts) <= width
    assert np.array_equal(np.concatenate(parts, 1), ink)


def test_wide_images_are_cut_between_words():
    line = np.ones((4, 21))
    for begin, end in ((0, 3), (4, 7), (12, 14), (15, 21)):
        line[:, begin:end] = 0
    text = blocks(line, 15, height=4)
    assert text == "███ ███\n███ ███\n\n   ██ ██████\n   ██ ██████"


def test_images_are_scaled_to_a_height():
    tall = np.repeat(np.repeat([[0.0, 1.0], [1.0, 0.0]], 32, 0), 32, 1)
    assert blocks(tall, height=4) == "██\n  ██"
    assert blocks(np.ones((16, 10))).strip() == ""  # white paper
    assert blocks(torch.tensor([[0.0], [1.0]]), height=2) == "▀"


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.ones(3), {}, r"must have the shape \[height, width\] .*, but its shape is \[3\]"),
        (np.ones((2, 0)), {}, r"its shape is \[2, 0\]"),
        (np.ones((2, 2)), {"width": 0}, "but they are 0 and 16"),
        (np.ones((2, 2)), {"height": 3}, "but they are 80 and 3"),
    ],
)
def test_images_that_cannot_be_written_are_errors(image, options, message):
    with pytest.raises(ValueError, match=f"blocks: .*{message}"):
        blocks(image, **options)
