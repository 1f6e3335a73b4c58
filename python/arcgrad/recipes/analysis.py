"""How a model decomposes words into pieces, if a loss leaves that to it.

Needs PyTorch for decompositions and matplotlib for pictures. Pictures are figures of matplotlib:
``figure.savefig("words.png")``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arcgrad.lexicon import Lexicon

from .markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from torch import Tensor

    from arcgrad.torch import TransducerLoss

__all__ = [
    "BINS",
    "Comparison",
    "PieceSpan",
    "compare",
    "comparison_table",
    "count_decompositions",
    "draw_decomposition",
    "draw_histograms",
    "histogram",
    "split_words",
    "viterbi_decompositions",
]

Pieces: TypeAlias = tuple[str, ...]
Decompositions: TypeAlias = dict[str, Counter[Pieces]]
"""For each word its decompositions, and how often each was chosen."""

BINS = (50, 100, 200, 500)
"""The bounds of the paper for histograms of piece counts (Figure 8)."""


@dataclass(frozen=True)
class PieceSpan:
    """A piece of a decomposition: frames from ``start`` up to ``end``, which is not included.

    ``score`` is the mean of the piece's emissions over its frames.
    """

    piece: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Comparison:
    """The decomposition of a word that was chosen most often, and that of a reference.

    Attributes:
        word: The word.
        chosen: The decomposition that was chosen most often.
        count: How often it was.
        reference: The decomposition of the reference.
        reference_count: How often that one was chosen.
        total: How often the word occurred.
    """

    word: str
    chosen: Pieces
    count: int
    reference: Pieces
    reference_count: int
    total: int


def viterbi_decompositions(
    loss: TransducerLoss, emissions: Tensor, texts: Sequence[str], lengths: Any = None
) -> list[list[PieceSpan]]:
    """The best decomposition of each text into pieces, and the frames of each piece.

    Args:
        loss: A loss with a :class:`arcgrad.lexicon.Lexicon`; its tokens and transitions count.
        emissions: Scores ``[B, T, C]``, or ``[T, C]`` for one text.
        texts: The text of each example.
        lengths: The number of frames of each example.

    Returns:
        The pieces of each text. There are none if nothing fits: too few frames, or no pieces that
        spell the text.

    Raises:
        ValueError: If the loss has no lexicon of pieces, or a character is not among the graphemes.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> from arcgrad.recipes import analysis
    >>> pieces = ["▁", "▁a", "a", "t", "at"]
    >>> lexicon = ag.lexicon.Lexicon(pieces, separator="▁", first_label=1)
    >>> loss = agt.TransducerLoss(pieces, lexicon, blank="optional", allow_repeats=False)
    >>> frames = torch.tensor([2, 2, 0, 4])  # ▁a ▁a - t
    >>> spans = analysis.viterbi_decompositions(loss, torch.eye(6)[frames], ["at"])[0]
    >>> [(span.piece, span.start, span.end) for span in spans]
    [('▁a', 0, 2), ('t', 3, 4)]
    """
    lexicon = loss.lexicon
    if not isinstance(lexicon, Lexicon):
        raise ValueError(
            "viterbi_decompositions: the loss must have a lexicon of pieces, but its lexicon is "
            f"{type(lexicon).__name__}"
        )
    return [
        [
            PieceSpan(piece, span.start, span.end, span.score)
            for piece, span in zip(lexicon.names(s.token for s in spans), spans, strict=True)
        ]
        for spans in loss.forced_align(emissions, texts, lengths)
    ]


def split_words(pieces: Iterable[str], separator: str | None = "▁") -> list[Pieces]:
    """Cuts the decomposition of a text into those of its words.

    A word begins with each piece that begins with the separator. Words that share a piece stay
    together, as does everything if there is no separator.

    >>> from arcgrad.recipes import analysis
    >>> analysis.split_words(["▁a", "ble", "▁", "se", "a"])
    [('▁a', 'ble'), ('▁', 'se', 'a')]
    """
    words: list[list[str]] = []
    for piece in pieces:
        if not words or (separator is not None and piece.startswith(separator)):
            words.append([])
        words[-1].append(piece)
    return [tuple(word) for word in words]


def count_decompositions(
    texts: Iterable[Iterable[str | PieceSpan]], separator: str | None = "▁"
) -> Decompositions:
    """How often each word of some texts was decomposed in each way.

    Args:
        texts: The decomposition of each text, as pieces or as :func:`viterbi_decompositions` gives
            them.
        separator: The character that marks the start of words; without one a text is one word.

    >>> from arcgrad.recipes import analysis
    >>> analysis.count_decompositions([["▁a", "t", "▁at"], ["▁a", "t"]])
    {'at': Counter({('▁a', 't'): 2, ('▁at',): 1})}
    """
    found: Decompositions = {}
    for text in texts:
        pieces = (piece.piece if isinstance(piece, PieceSpan) else piece for piece in text)
        for word in split_words(pieces, separator):
            name = "".join(word)
            if separator is not None:
                name = name.replace(separator, " ").strip()
            found.setdefault(name, Counter())[word] += 1
    return found


def compare(
    decompositions: Decompositions,
    reference: Callable[[str], Sequence[str]],
    *,
    differ: bool = True,
    min_count: int = 1,
) -> list[Comparison]:
    """Sets the decompositions of words beside those of a reference (Table 4 of the paper).

    Args:
        decompositions: What :func:`count_decompositions` returns.
        reference: A function from a word to its pieces, such as
            ``lambda word: model.encode(word, out_type=str)`` with a model of SentencePiece.
        differ: Leave out words whose most frequent decomposition is that of the reference. Of
            decompositions that are equally frequent the reference comes first, then the one with
            fewer pieces.
        min_count: Leave out words whose most frequent decomposition was chosen less often.

    Returns:
        One comparison per word; those whose decomposition was chosen most often come first.

    >>> from arcgrad.recipes import analysis
    >>> words = analysis.count_decompositions([["▁a", "ble"], ["▁a", "ble"], ["▁", "able"]])
    >>> analysis.compare(words, {"able": ["▁", "able"]}.__getitem__)[0].count
    2
    """
    rows = []
    for word, counts in decompositions.items():
        expected = tuple(reference(word))
        chosen, count = min(
            counts.items(), key=lambda item: (-item[1], item[0] != expected, len(item[0]), item[0])
        )
        if count >= min_count and not (differ and chosen == expected):
            row = Comparison(word, chosen, count, expected, counts[expected], counts.total())
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.count, row.word))


def comparison_table(comparisons: Iterable[Comparison], reference: str = "reference") -> str:
    """The comparisons as a table in Markdown.

    Args:
        comparisons: The rows.
        reference: The name of the reference.

    >>> from arcgrad.recipes import analysis
    >>> row = analysis.Comparison("able", ("▁a", "ble"), 121, ("▁", "able"), 88, 209)
    >>> print(analysis.comparison_table([row], "SentencePiece"))
    | word | most common | count | SentencePiece | count |
    |------|-------------|------:|---------------|------:|
    | able | ▁a, ble     |   121 | ▁, able       |    88 |
    """
    header = ["word", "most common", "count", reference, "count"]
    rows = [
        [
            row.word,
            ", ".join(row.chosen),
            str(row.count),
            ", ".join(row.reference),
            str(row.reference_count),
        ]
        for row in comparisons
    ]
    return markdown_table(header, rows, left=(0, 1, 3))


def histogram(
    counts: Mapping[str, int], pieces: Iterable[str], bins: Sequence[int] = BINS
) -> dict[str, int]:
    """How many pieces occur how often (Figure 8 of the paper).

    Args:
        counts: How often each piece occurs, such as a :class:`collections.Counter` of the pieces of
            the training text. Pieces that are missing occur 0 times.
        pieces: All pieces.
        bins: The bounds, which rise: up to and including the first, from there to the second, ...,
            and beyond the last.

    Returns:
        The number of pieces in each bin, by the name of the bin.

    Raises:
        ValueError: If there are no bounds or they do not rise, or something is counted that is not
            among the pieces.

    >>> from arcgrad.recipes import analysis
    >>> analysis.histogram({"a": 50, "b": 51, "c": 900}, "abcd")
    {'c ≤ 50': 2, '50 < c ≤ 100': 1, '100 < c ≤ 200': 0, '200 < c ≤ 500': 0, '500 < c': 1}
    """
    bounds = list(bins)
    if not bounds or any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(f"histogram: bins must be bounds that rise, but they are {bounds}")
    every = dict.fromkeys(pieces)
    unknown = next((piece for piece in counts if piece not in every), None)
    if unknown is not None:
        raise ValueError(f"histogram: what is counted must be a piece, but there is {unknown!r}")
    names = [f"c ≤ {bounds[0]}"]
    names += [f"{low} < c ≤ {high}" for low, high in itertools.pairwise(bounds)]
    names.append(f"{bounds[-1]} < c")
    places = np.searchsorted(bounds, [counts.get(piece, 0) for piece in every], side="left")
    sizes = np.bincount(places, minlength=len(names)).tolist()
    return dict(zip(names, sizes, strict=True))


def draw_histograms(histograms: Mapping[str, Mapping[str, int]]) -> Figure:
    """Bars for the histograms of some data sets, side by side (Figure 8 of the paper).

    Args:
        histograms: For each data set what :func:`histogram` returns, all with the same bins.

    Raises:
        ValueError: If there are none, or their bins differ.

    >>> from arcgrad.recipes import analysis
    >>> figure = analysis.draw_histograms({"words": analysis.histogram({"a": 70}, "ab")})
    >>> figure.savefig("pieces.png")
    """
    from matplotlib.figure import Figure

    bins = {tuple(found) for found in histograms.values()}
    if len(bins) != 1:
        raise ValueError(
            f"draw_histograms: histograms must have the same bins, but there are {len(bins)} kinds"
        )
    names = bins.pop()
    figure = Figure(figsize=(1.6 * len(names) + 1, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(histograms)
    for i, (name, found) in enumerate(histograms.items()):
        places = np.arange(len(names)) + (i - (len(histograms) - 1) / 2) * width
        bars = axes.bar(places, list(found.values()), 0.9 * width, label=name)
        axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("number of pieces")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def draw_decomposition(
    image: Any, spans: Sequence[PieceSpan], num_frames: int, *, axes: Axes | None = None
) -> Figure | SubFigure:
    """An image or spectrogram, and under it the pieces where they were read (Figure 7).

    Args:
        image: An array ``[height, width]`` or ``[height, width, 3]``, with time from left to right:
            a line of handwriting, dark on light, or a spectrogram with its lowest frequency in the
            last row.
        spans: The pieces, as :func:`viterbi_decompositions` gives them.
        num_frames: The number of frames of the emissions, which lie evenly along the width.
        axes: Where to draw; by default in a figure of its own.

    Returns:
        The figure.

    Raises:
        ValueError: If the image has another shape, or a span lies outside of the frames.

    >>> import numpy as np
    >>> from arcgrad.recipes import analysis
    >>> spans = [analysis.PieceSpan("▁th", 0, 2, 0.0), analysis.PieceSpan("e", 3, 4, 0.0)]
    >>> figure = analysis.draw_decomposition(np.ones((20, 60)), spans, num_frames=5)
    >>> figure.savefig("the.png")
    """
    from matplotlib.figure import Figure

    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise ValueError(
            "draw_decomposition: an image must have the shape [height, width] or [height, width, "
            f"3] and some pixels, but its shape is {list(pixels.shape)}"
        )
    for span in spans:
        if not 0 <= span.start < span.end <= num_frames:
            raise ValueError(
                f"draw_decomposition: spans must lie within {num_frames} frames, but {span.piece!r}"
                f" lies from {span.start} to {span.end}"
            )
    height, width = pixels.shape[:2]
    if axes is None:
        inches = float(np.clip(0.8 * width / height, 4, 16))
        figure = Figure(figsize=(inches, inches * height / width + 0.8), layout="constrained")
        axes = figure.subplots()
    axes.imshow(pixels, cmap="gray", aspect="auto", extent=(0, num_frames, 0, 1))
    for i, span in enumerate(spans):
        axes.axvspan(span.start, span.end, color=f"C{i % 10}", alpha=0.3, linewidth=0)
        axes.annotate(
            span.piece,
            ((span.start + span.end) / 2, 0),
            xytext=(0, -4 - 14 * (i % 2)),  # two rows, so that neighbours do not overlap
            textcoords="offset points",
            color=f"C{i % 10}",
            ha="center",
            va="top",
            annotation_clip=False,
            parse_math=False,  # a piece may have dollars
        )
    axes.set_axis_off()
    return axes.figure
