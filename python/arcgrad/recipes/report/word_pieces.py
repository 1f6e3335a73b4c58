"""Word pieces in pictures and tables: histograms, decompositions, and their comparison.

Pictures are figures of matplotlib: ``figure.savefig("words.png")``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arcgrad.recipes.inference import Comparison, PieceSpan

from .markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "BINS",
    "comparison_table",
    "draw_decomposition",
    "draw_histograms",
    "histogram",
]

BINS = (50, 100, 200, 500)
"""The bounds of the paper for histograms of piece counts (Figure 8)."""


def comparison_table(comparisons: Iterable[Comparison], reference: str = "reference") -> str:
    """Return comparisons as a Markdown table.

    Args:
        comparisons: The comparisons, by :func:`arcgrad.recipes.inference.compare`.
        reference: The name of the reference.

    >>> from arcgrad.recipes.inference import Comparison
    >>> from arcgrad.recipes.report import comparison_table
    >>> row = Comparison("able", ("▁a", "ble"), 121, ("▁", "able"), 88, 209)
    >>> print(comparison_table([row], "SentencePiece"))
    | word   | most common   |   count | SentencePiece   |   count |
    |:-------|:--------------|--------:|:----------------|--------:|
    | able   | ▁a, ble       |     121 | ▁, able         |      88 |
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
    """Return the histogram of the counts of word pieces (Figure 8 of the paper).

    Args:
        counts: The count of each piece, such as a :class:`collections.Counter` of the pieces of the
            training text; 0 for a piece that is missing.
        pieces: All pieces.
        bins: The increasing bounds of the bins; each bin includes its upper bound, and there is one
            more bin above the last bound.

    Returns:
        The number of pieces in each bin, by the name of the bin.

    Raises:
        ValueError: If there are no bounds, they do not increase, or ``counts`` has an unknown
            piece.

    >>> from arcgrad.recipes.report import histogram
    >>> histogram({"a": 50, "b": 51, "c": 900}, "abcd")
    {'c ≤ 50': 2, '50 < c ≤ 100': 1, '100 < c ≤ 200': 0, '200 < c ≤ 500': 0, '500 < c': 1}
    """
    bounds = list(bins)
    if not bounds or any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(f"histogram: bins must be increasing bounds, but they are {bounds}")
    every = dict.fromkeys(pieces)
    unknown = next((piece for piece in counts if piece not in every), None)
    if unknown is not None:
        raise ValueError(f"histogram: counts must be of pieces, but one is of {unknown!r}")
    names = [f"c ≤ {bounds[0]}"]
    names += [f"{low} < c ≤ {high}" for low, high in itertools.pairwise(bounds)]
    names.append(f"{bounds[-1]} < c")
    bin_of = np.searchsorted(bounds, [counts.get(piece, 0) for piece in every], side="left")
    sizes = np.bincount(bin_of, minlength=len(names)).tolist()
    return dict(zip(names, sizes, strict=True))


def draw_histograms(histograms: Mapping[str, Mapping[str, int]]) -> Figure:
    """Draw the histograms of several data sets side by side (Figure 8 of the paper).

    Args:
        histograms: The result of :func:`histogram` for each data set, all with the same bins.

    Raises:
        ValueError: If there are no histograms, or their bins differ.

    >>> from arcgrad.recipes.report import draw_histograms, histogram
    >>> figure = draw_histograms({"words": histogram({"a": 70}, "ab")})
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
        left = np.arange(len(names)) + (i - (len(histograms) - 1) / 2) * width
        bars = axes.bar(left, list(found.values()), 0.9 * width, label=name)
        axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("number of pieces")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def draw_decomposition(
    image: Any, spans: Sequence[PieceSpan], num_frames: int, *, axes: Axes | None = None
) -> Figure | SubFigure:
    """Draw an image or spectrogram with the positions of word pieces (Figure 7 of the paper).

    Args:
        image: An array ``[height, width]`` or ``[height, width, 3]``, with time from left to right:
            a line of handwriting, dark on light, or a spectrogram with its lowest frequency in the
            last row.
        spans: The pieces, by :func:`arcgrad.recipes.inference.viterbi_decompositions`.
        num_frames: The number of frames of the emissions, which divide the width evenly.
        axes: The axes to draw into; None for a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: If the image has another shape, or a span lies outside of the frames.

    >>> import numpy as np
    >>> from arcgrad.recipes.inference import PieceSpan
    >>> from arcgrad.recipes.report import draw_decomposition
    >>> spans = [PieceSpan("▁th", 0, 2, 0.0), PieceSpan("e", 3, 4, 0.0)]
    >>> figure = draw_decomposition(np.ones((20, 60)), spans, num_frames=5)
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
            xytext=(0, -4 - 14 * (i % 2)),  # alternate rows, so that adjacent labels do not overlap
            textcoords="offset points",
            color=f"C{i % 10}",
            ha="center",
            va="top",
            annotation_clip=False,
            parse_math=False,  # a piece may have dollars
        )
    axes.set_axis_off()
    return axes.figure
