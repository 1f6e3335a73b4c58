"""Pictures of what a recogniser does: figures of matplotlib, and images as text.

Figures are saved with ``figure.savefig("alignment.png")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from arcgrad.torch import TokenSpan

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["blocks", "plot_alignment"]

# Labels that are never likelier than this are left out of heat maps, as are those beyond the
# likeliest.
LEAST, MOST_LABELS = 0.05, 40

# The most inches of a picture.
WIDEST = 30.0

HEAT, PATH = "#2f7ed8", "#d9480f"

# The halves of a character that have ink: none, the upper, the lower, both.
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
    """Draws the probabilities of labels by frame, and a path through them.

    Labels that are neither likely at some frame nor on the path are left out.

    Args:
        emissions: Scores ``[T, C]``; probabilities are their softmax.
        path: Where each token lies, as ``forced_align`` returns it; or the label of each frame, as
            :meth:`arcgrad.torch.TransducerLoss.viterbi_frames` does. It may be empty.
        tokens: The name of each label; by default labels are numbers.
        image: The input ``[height, width]``, to be drawn above, with time from left to right.
        title: What stands above all.
        figure: Where to draw; by default a figure of its own, as large as it needs to be.

    Returns:
        The figure.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no emissions, not one name for each label, or the path does not lie
            within the emissions.

    >>> import torch
    >>> from arcgrad.torch import forced_align
    >>> from arcgrad.recipes.plots import plot_alignment
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
    try:
        from matplotlib.colors import LinearSegmentedColormap, to_rgba
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ImportError(
            "plot_alignment needs matplotlib, but it is not installed; pip install 'arcgrad[draw]'"
        ) from error

    heights = [*([] if image is None else [0.9]), 0.19 * len(labels) + 0.2]
    if figure is None:
        width = figure_width(num_frames)
        height = sum(heights) + (0.7 if title is None else 1.0)
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    axes: Any = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    # Names may have dollars, which are no mathematics.
    if title is not None:
        figure.suptitle(title, fontsize=10, parse_math=False)
    if image is not None:
        # Drawn in the units of frames, so that columns stand above the frames they became.
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
    # Improbable is transparent, so that the picture fits any background.
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
    row = {label: place + 0.5 for place, label in enumerate(labels)}
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


def figure_width(num_frames: int) -> float:
    """The inches of a picture of frames."""
    return min(max(6.0, 0.11 * num_frames + 1.0), WIDEST)


def blocks(image: Any, width: int = 80, *, height: int = 16) -> str:
    """An image as text, two pixels to a character, for terminals.

    Args:
        image: An array ``[height, width]`` with dark writing on light paper. What is darker than
            the middle between its darkest and its lightest pixel is ink.
        width: The most characters of a line. Wider images are cut, where they have no ink if
            possible, and their parts stand one below the other.
        height: The number of pixels that images are scaled to, an even number.

    Returns:
        Lines of text, without spaces at their ends; an empty line between parts.

    Raises:
        ValueError: If the image has another shape or no pixels, or a size is not positive.

    >>> import torch
    >>> from arcgrad.recipes.plots import blocks
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
    # A frame at which nothing is possible has no distribution.
    return emissions.detach().cpu().float().softmax(-1).nan_to_num().numpy()


def _runs(path: Sequence[Any], num_frames: int, num_labels: int) -> list[tuple[int, int, int]]:
    """The label, first frame and end of each stretch of a path."""
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
    """The labels that are drawn, in their order."""
    best = posteriors.max(0)
    by_probability = [int(label) for label in np.argsort(-best, kind="stable")]
    likely = [c for c in by_probability if best[c] >= LEAST][: max(MOST_LABELS - len(on_path), 0)]
    return sorted(on_path.union(likely) or by_probability[:1])


def _cut(has_ink: Any, width: int) -> int:
    """Where to cut an image that may have columns of ink up to a width, in its second half."""
    if len(has_ink) <= width:
        return len(has_ink)
    free = np.flatnonzero(~has_ink[: width + 1])
    # Of the columns without ink the middle of the widest gap: words rather than letters are parted.
    gaps = [gap for gap in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1) if gap.size]
    gaps = [gap for gap in gaps if gap[-1] >= width // 2]
    if not gaps:
        return width
    widest = max(gaps, key=lambda gap: (gap.size, gap[-1]))
    return int(min(max(widest[widest.size // 2], 1), width))
