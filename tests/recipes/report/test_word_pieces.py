"""Which decompositions a model chooses: known alignments, tables, histograms and pictures."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.recipes import inference, report
from arcgrad.recipes.inference import Comparison, PieceSpan
from arcgrad.recipes.report import BINS

PIECES = ["▁", "▁a", "▁know", "▁k", "a", "b", "k", "l", "n", "o", "w", "e", "ble", "able", "now"]
LEXICON = ag.lexicon.Lexicon(PIECES, separator="▁", first_label=1)


def loss(**options):
    return agt.TransducerLoss(PIECES, LEXICON, blank="optional", allow_repeats=False, **options)


def frames(text):
    """Emissions whose best label in each frame is a piece; "-" is the blank."""
    labels = [0 if piece == "-" else PIECES.index(piece) + 1 for piece in text.split()]
    return torch.eye(len(PIECES) + 1)[torch.tensor(labels)].mul(9).log_softmax(-1)


def described(spans):
    return [(span.piece, span.start, span.end) for span in spans]


# Decompositions


def test_the_pieces_of_known_frames():
    found = inference.viterbi_decompositions(
        loss(), frames("- ▁a ▁a - ble ▁know ▁know"), ["able know"]
    )
    assert described(found[0]) == [("▁a", 1, 3), ("ble", 4, 5), ("▁know", 5, 7)]
    assert all(-0.1 < span.score <= 0 for span in found[0])


def test_the_same_word_is_decomposed_as_its_frames_say():
    x = torch.stack([frames("▁k n o w - -"), frames("▁know ▁know - - - -")])
    slow, fast = inference.viterbi_decompositions(loss(), x, ["know", "know"], [6, 3])
    assert described(slow) == [("▁k", 0, 1), ("n", 1, 2), ("o", 2, 3), ("w", 3, 4)]
    assert described(fast) == [("▁know", 0, 2)]


def test_transitions_decide_where_emissions_tie():
    """Where emissions tie, a large transition score decides."""
    graph = ag.ngram.dense_graph(len(PIECES) + 1, 2)
    table = np.zeros((len(PIECES) + 2, len(PIECES) + 1), np.float32)
    for way in (["▁", "able"], ["▁a", "ble"]):
        first, second = (PIECES.index(piece) + 1 for piece in way)
        table[:] = 0
        table[first + 1, second] = 5
        graph.set_weights(table)
        x = torch.zeros(2, len(PIECES) + 1)
        found = inference.viterbi_decompositions(loss(transitions=graph), x, ["able"])
        assert described(found[0]) == [(way[0], 0, 1), (way[1], 1, 2)]


def test_infeasible_texts_have_no_pieces():
    assert inference.viterbi_decompositions(loss(), torch.zeros(1, 16), ["able able"]) == [[]]
    bare = agt.TransducerLoss(3, blank="optional")
    with pytest.raises(ValueError, match="must have a lexicon of pieces, but its lexicon is None"):
        inference.viterbi_decompositions(bare, torch.zeros(1, 4), ["a"])
    with pytest.raises(ValueError, match="every character must be a grapheme"):
        inference.viterbi_decompositions(loss(), torch.zeros(1, 16), ["xyz"])


# Words


@pytest.mark.parametrize(
    ("pieces", "separator", "words"),
    [
        ([], "▁", []),
        (["a", "t", "▁a"], "▁", [("a", "t"), ("▁a",)]),
        (["▁", "▁", "a"], "▁", [("▁",), ("▁", "a")]),
        (["▁a▁", "b", "▁b"], "▁", [("▁a▁", "b"), ("▁b",)]),
        (["a", "▁b"], None, [("a", "▁b")]),
    ],
)
def test_texts_are_cut_at_separators(pieces, separator, words):
    assert inference.split_words(pieces, separator) == words


@given(
    st.lists(st.sampled_from(["able", "know", "a", "now"]), min_size=1, max_size=5),
    st.integers(0, 99),
)
def test_words_are_those_of_the_text(words, seed):
    way = LEXICON.names(LEXICON.sample(" ".join(words), seed=seed)[0])
    parts = inference.split_words(way)
    assert [LEXICON.graphemes_to_text(LEXICON.spell("".join(part))) for part in parts] == words
    assert [piece for part in parts for piece in part] == way


def test_decompositions_are_counted_by_word():
    texts = [["▁a", "ble", "▁know"], ["▁", "able", "▁a", "ble"], []]
    found = inference.count_decompositions(texts)
    assert found == {"able": {("▁a", "ble"): 2, ("▁", "able"): 1}, "know": {("▁know",): 1}}
    spans = [[PieceSpan(piece, i, i + 1, 0.0) for i, piece in enumerate(text)] for text in texts]
    assert inference.count_decompositions(spans) == found
    assert inference.count_decompositions([["a b", "c"]], None) == {"a bc": {("a b", "c"): 1}}


# Comparisons


COUNTED = {
    "able": Counter({("▁a", "ble"): 121, ("▁", "able"): 88}),
    "know": Counter({("▁know",): 30, ("▁k", "now"): 200}),
    "same": Counter({("▁s", "ame"): 7}),
    "tied": Counter({("▁ti", "ed"): 4, ("▁", "tied"): 4, ("▁t", "i", "ed"): 4}),
    "never": Counter({("▁ne", "ver"): 5}),
}
REFERENCE = {
    "able": ["▁", "able"],
    "know": ["▁know"],
    "same": ["▁s", "ame"],
    "tied": ["▁t", "i", "ed"],
    "never": ["▁never"],
}


def test_words_that_differ_from_the_reference():
    rows = inference.compare(COUNTED, REFERENCE.__getitem__)
    assert rows == [
        Comparison("know", ("▁k", "now"), 200, ("▁know",), 30, 230),
        Comparison("able", ("▁a", "ble"), 121, ("▁", "able"), 88, 209),
        Comparison("never", ("▁ne", "ver"), 5, ("▁never",), 0, 5),
    ]
    assert inference.compare(COUNTED, REFERENCE.__getitem__, min_count=100) == rows[:2]
    every = inference.compare(COUNTED, REFERENCE.__getitem__, differ=False)
    assert [row.word for row in every] == ["know", "able", "same", "never", "tied"]
    assert every[-1].chosen == ("▁t", "i", "ed")
    assert inference.compare({}, REFERENCE.__getitem__) == []
    assert ("▁never",) not in COUNTED["never"]


def test_ties_prefer_fewer_pieces():
    counts = {"tied": COUNTED["tied"]}
    (row,) = inference.compare(counts, lambda word: ["▁tied"])
    assert row.chosen == ("▁", "tied")


def test_the_table_of_comparisons():
    rows = inference.compare(COUNTED, REFERENCE.__getitem__)
    lines = report.comparison_table(rows, "SentencePiece").splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1
    assert lines[2] == "| know   | ▁k, now       |     200 | ▁know           |      30 |"
    assert len(report.comparison_table([]).splitlines()) == 2


def test_from_emissions_to_the_table():
    """A model that spells "able" in one way twice and in another once."""
    x = torch.stack([frames("▁a ble - -"), frames("▁a - ble -"), frames("▁ - able -")])
    found = inference.viterbi_decompositions(loss(), x, ["able"] * 3)
    rows = inference.compare(inference.count_decompositions(found), lambda word: ["▁", "able"])
    assert rows == [Comparison("able", ("▁a", "ble"), 2, ("▁", "able"), 1, 3)]


# Histograms


@given(st.lists(st.integers(0, 1000), max_size=40))
def test_bins_hold_the_pieces_with_these_counts(numbers):
    pieces = [f"piece {i}" for i in range(len(numbers))]
    counts = {p: n for p, n in zip(pieces, numbers, strict=True) if n}
    found = report.histogram(counts, pieces)
    bounds = [-1, *BINS, np.inf]
    expected = [sum(low < n <= high for n in numbers) for low, high in itertools.pairwise(bounds)]
    assert list(found.values()) == expected
    assert list(found) == [
        *("c ≤ 50", "50 < c ≤ 100", "100 < c ≤ 200", "200 < c ≤ 500", "500 < c"),
    ]


def test_bad_histograms():
    for bins in ([], [3, 3], [5, 2]):
        with pytest.raises(ValueError, match="bins must be increasing bounds, but they are"):
            report.histogram({}, "a", bins)
    with pytest.raises(ValueError, match="must be of pieces, but one is of 'z'"):
        report.histogram({"z": 1}, "a")
    with pytest.raises(ValueError, match="must have the same bins, but there are 2 kinds"):
        report.draw_histograms({"a": {"c ≤ 1": 0}, "b": {"c ≤ 2": 0}})
    with pytest.raises(ValueError, match="must have the same bins, but there are 0 kinds"):
        report.draw_histograms({})


def test_bars_show_the_histograms():
    histograms = {
        "one": report.histogram({"a": 60}, "ab"),
        "two": report.histogram({"a": 600, "b": 70}, "ab"),
    }
    (axes,) = report.draw_histograms(histograms).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [list(found.values()) for found in histograms.values()]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(histograms["one"])


# Pictures


def test_pieces_lie_under_their_part_of_the_image(tmp_path):
    spans = [PieceSpan("▁k", 2, 4, 0.0), PieceSpan("now", 6, 10, 0.0)]
    figure = report.draw_decomposition(torch.rand(32, 200), spans, num_frames=20)
    (axes,) = figure.axes
    assert axes.images[0].get_extent()[:2] == [0, 20]
    assert [(text.get_text(), text.xy[0]) for text in axes.texts] == [("▁k", 3), ("now", 8)]
    boxes = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    assert [(round(box.x0), round(box.x1)) for box in boxes] == [(2, 4), (6, 10)]
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_several_pictures_in_one_figure():
    from matplotlib.figure import Figure

    figure = Figure()
    for axes in figure.subplots(2):
        returned = report.draw_decomposition(np.ones((4, 8, 3)), [], 2, axes=axes)
        assert returned is figure
    assert all(len(axes.images) == 1 for axes in figure.axes)


def test_bad_pictures():
    with pytest.raises(ValueError, match=r"an image must have the shape .* its shape is \[5\]"):
        report.draw_decomposition(np.ones(5), [], 3)
    with pytest.raises(ValueError, match="within 3 frames, but 'a' lies from 2 to 4"):
        report.draw_decomposition(np.ones((5, 5)), [PieceSpan("a", 2, 4, 0.0)], 3)
