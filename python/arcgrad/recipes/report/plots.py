"""Pictures of the predictions of a recogniser: figures of matplotlib, and images as text.

Figures are saved with ``figure.savefig("alignment.png")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from arcgrad.recipes.inference import Prediction
from arcgrad.torch import TokenSpan

from .word_pieces import draw_decomposition

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["blocks", "draw_pieces", "draw_prediction", "plot_alignment"]

# Heat maps leave out labels whose probability is always lower, and have at most so many labels.
LEAST, MOST_LABELS = 0.05, 40

# The maximum width of a picture in inches.
WIDEST = 30.0

HEAT, PATH = "#2f7ed8", "#d9480f"

# The characters for ink in neither half, the upper, the lower and both.
HALVES = " ▀▄█"


def plot_alignment(
    emissions: Tensor,
    path: Sequence[TokenSpan] | Sequence[int],
    *,
    tokens: Sequence[str] | None = None,
    image: Any = None,
    title: str | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draw the probabilities of labels by frame, with a path.

    Labels that are improbable in every frame are left out, unless they are on the path.

    Args:
        emissions: Scores ``[T, C]``; their softmax is drawn.
        path: The position of each token, as ``forced_align`` returns it; or the label of each
            frame, as :meth:`arcgrad.torch.TransducerLoss.viterbi_frames` returns it. It may be
            empty.
        tokens: The name of each label; None for numbers.
        image: The input ``[height, width]`` to draw above, with time from left to right.
        title: The title of the figure.
        figure: The figure to draw into; None for a new figure of sufficient size.

    Returns:
        The figure.

    Raises:
        ValueError: If there are no emissions, not one name for each label, or the path does not lie
            within the emissions.

    >>> import torch
    >>> from arcgrad.torch import forced_align
    >>> from arcgrad.recipes.report import plot_alignment
    >>> emissions = 5 * torch.eye(3)[torch.tensor([0, 1, 1, 0, 2])]
    >>> spans = forced_align(emissions.log_softmax(-1), [[1, 2]])[0]
    >>> figure = plot_alignment(emissions, spans, tokens=["blank", "a", "b"])
    >>> figure.savefig("alignment.png")
    >>> figure = plot_alignment(emissions, [0, 1, 1, 0, 2], title="the label of each frame")
    """
    posteriors = _posteriors(emissions)
    num_frames, num_labels = posteriors.shape
    if tokens is None:
        tokens = [str(label) for label in range(num_labels)]
    if len(tokens) != num_labels:
        raise ValueError(
            "plot_alignment: each label must have a token, but there are "
            f"{num_labels} labels and {len(tokens)} tokens"
        )
    runs = _runs(path, num_frames, num_labels)
    labels = _shown(posteriors, {label for label, _, _ in runs})
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    heights = [*([] if image is None else [0.9]), 0.19 * len(labels) + 0.2]
    if figure is None:
        width = _figure_width(num_frames)
        height = sum(heights) + (0.7 if title is None else 1.0)
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    axes: Any = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    # A dollar in a name does not start a formula.
    if title is not None:
        figure.suptitle(title, fontsize=10, parse_math=False)
    if image is not None:
        # In units of frames, so that columns stand above their frames.
        pixels = np.asarray(image)
        axes[0].imshow(
            pixels,
            cmap="gray",
            aspect="auto",
            extent=(0, num_frames, 1, 0),
            interpolation="none",
        )
        axes[0].set_axis_off()
    heat = axes[-1]
    # Probability 0 is transparent, so that the picture fits any background.
    colors = LinearSegmentedColormap.from_list("heat", [to_rgba(HEAT, 0.0), to_rgba(HEAT, 1.0)])
    shown = heat.imshow(
        posteriors[:, labels].T,
        cmap=colors,
        aspect="auto",
        vmin=0.0,
        vmax=1.0,
        extent=(0, num_frames, len(labels), 0),
        interpolation="none",
    )
    row = {label: index + 0.5 for index, label in enumerate(labels)}
    heat.set_yticks(list(row.values()), [tokens[c] for c in labels], fontsize=8, parse_math=False)
    heat.set_xlabel("frame", fontsize=8)
    heat.xaxis.set_major_locator(MaxNLocator(integer=True))
    heat.tick_params(axis="x", labelsize=8)
    points = [(x, row[label]) for label, start, end in runs for x in (start + 0.1, end - 0.1)]
    heat.plot([x for x, _ in points], [y for _, y in points], color=PATH, lw=0.7, alpha=0.6)
    starts, ends = np.array([run[1:] for run in runs], float).reshape(-1, 2).T
    rows = [row[label] for label, _, _ in runs]
    heat.hlines(rows, starts + 0.1, ends - 0.1, color=PATH, lw=2.2)
    if image is not None:
        axes[0].vlines(starts, 0, 1, color=PATH, lw=0.5, alpha=0.6)
    bar = figure.colorbar(shown, ax=heat, pad=0.01)
    bar.set_label("probability", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def draw_prediction(prediction: Prediction, title: str | None = None) -> Figure:
    """Draw the image of a prediction, the probabilities of labels, and the best path."""
    figure = plot_alignment(
        prediction.emissions,
        prediction.path,
        tokens=prediction.names,
        image=prediction.image,
        title=title,
    )
    return cast("Figure", figure)


def draw_pieces(prediction: Prediction) -> Figure:
    """Draw the image of a prediction with the positions of its word pieces."""
    from matplotlib.figure import Figure

    num_frames = len(prediction.emissions)
    figure = Figure(figsize=(_figure_width(num_frames), 1.6), layout="constrained")
    draw_decomposition(prediction.image, prediction.pieces, num_frames, axes=figure.subplots())
    return figure


def _figure_width(num_frames: int) -> float:
    """Return the width of a picture in inches."""
    return min(max(6.0, 0.11 * num_frames + 1.0), WIDEST)


def blocks(image: Any, width: int = 80, *, height: int = 16) -> str:
    """Return an image as text for terminals, with two pixels in each character.

    Args:
        image: An array ``[height, width]`` with dark writing on light paper. A pixel is ink if it
            is darker than the mean of the darkest and the lightest pixel.
        width: The maximum number of characters in a line. Wider images are cut into parts, one
            below the other, if possible at columns without ink.
        height: The height in pixels to which images are scaled, an even number.

    Returns:
        Lines of text without trailing spaces; an empty line separates parts.

    Raises:
        ValueError: If the image has another shape or no pixels, or a size is not positive.

    >>> import torch
    >>> from arcgrad.recipes.report import blocks
    >>> ring = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    >>> print(blocks(ring, height=4))
    ▄▀▀▄
    ▀▄▄▀
    """
    pixels = torch.as_tensor(np.asarray(image, np.float32))
    if pixels.dim() != 2 or not pixels.numel():
        raise ValueError(
            "blocks: an image must have the shape [height, width] and some pixels, but its shape is"
            f" {list(pixels.shape)}"
        )
    if width < 1 or height < 2 or height % 2:
        raise ValueError(
            "blocks: the width must be positive and the height positive and even, but they are "
            f"{width} and {height}"
        )
    if pixels.shape[0] != height:
        size = height, max(1, round(pixels.shape[1] * height / pixels.shape[0]))
        pixels = torch.nn.functional.interpolate(
            pixels[None, None], size, mode="bilinear", antialias=True, align_corners=False
        )[0, 0]
    ink = (pixels < (pixels.min() + pixels.max()) / 2).numpy()
    parts = []
    while ink.shape[1]:
        end = _cut(ink.any(0), width)
        halves = ink[0::2, :end] + 2 * ink[1::2, :end]
        rows = ["".join(HALVES[half] for half in row).rstrip() for row in halves]
        parts.append("\n".join(rows))
        ink = ink[:, end:]
    return "\n\n".join(parts)


def _posteriors(emissions: Tensor) -> Any:
    emissions = torch.as_tensor(emissions)
    if emissions.dim() != 2 or not emissions.numel():
        raise ValueError(
            "plot_alignment: emissions must have the shape [T, C] with a frame and a label, but "
            f"their shape is {list(emissions.shape)}"
        )
    # The softmax of a frame whose scores are all -inf is NaN.
    return emissions.detach().cpu().float().softmax(-1).nan_to_num().numpy()


def _runs(path: Sequence[Any], num_frames: int, num_labels: int) -> list[tuple[int, int, int]]:
    """Return the label, first frame and end of each run of equal labels."""
    path = list(path)
    if path and not isinstance(path[0], TokenSpan):
        if len(path) != num_frames:
            raise ValueError(
                f"plot_alignment: a path by frames must have {num_frames} labels, one for each "
                f"frame, but it has {len(path)}"
            )
        runs, start = [], 0
        for label, group in groupby(int(label) for label in path):
            end = start + sum(1 for _ in group)
            runs.append((label, start, end))
            start = end
    else:
        runs = [(span.token, span.start, span.end) for span in path]
    for label, start, end in runs:
        if not (0 <= start < end <= num_frames and 0 <= label < num_labels):
            raise ValueError(
                f"plot_alignment: the path must lie within {num_frames} frames and {num_labels} "
                f"labels, but label {label} lies from {start} to {end}"
            )
    return runs


def _shown(posteriors: Any, on_path: set[int]) -> list[int]:
    """Return the labels to draw, in order."""
    best = posteriors.max(0)
    by_probability = [int(label) for label in np.argsort(-best, kind="stable")]
    likely = [c for c in by_probability if best[c] >= LEAST][: max(MOST_LABELS - len(on_path), 0)]
    return sorted(on_path.union(likely) or by_probability[:1])


def _cut(has_ink: Any, width: int) -> int:
    """Return the column at which to cut an image, between half the width and the width."""
    if len(has_ink) <= width:
        return len(has_ink)
    free = np.flatnonzero(~has_ink[: width + 1])
    # The middle of the widest gap, so that the cut is between words rather than between letters.
    gaps = [gap for gap in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1) if gap.size]
    gaps = [gap for gap in gaps if gap[-1] >= width // 2]
    if not gaps:
        return width
    widest = max(gaps, key=lambda gap: (gap.size, gap[-1]))
    return int(min(max(widest[widest.size // 2], 1), width))
