"""Pictures of what a recogniser does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from arcgrad.torch import TokenSpan

__all__ = ["plot_alignment"]

# Labels that are never likelier than this are left out of heat maps.
LEAST = 0.05


def plot_alignment(
    emissions: Tensor,
    path: Sequence[TokenSpan],
    file_name: str | os.PathLike[str],
    *,
    tokens: Sequence[str],
    image: Tensor | None = None,
    title: str | None = None,
) -> None:
    """Draws the probabilities of labels by frame, and a path through them.

    Args:
        emissions: Scores ``[T, C]``; probabilities are their softmax.
        path: Where each token of the path lies, as ``forced_align`` returns it.
        file_name: Where to; its ending says the format.
        tokens: The name of each label.
        image: The input ``[height, width]``, to be drawn above.
        title: What stands above all.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is not one name for each label.

    >>> import torch
    >>> from arcgrad.torch import forced_align
    >>> from arcgrad.recipes.plots import plot_alignment
    >>> emissions = 5 * torch.eye(3)[torch.tensor([0, 1, 1, 0, 2])]
    >>> spans = forced_align(emissions.log_softmax(-1), [[1, 2]])[0]
    >>> plot_alignment(emissions, spans, "alignment.png", tokens=["blank", "a", "b"])
    """
    if emissions.dim() != 2 or emissions.shape[1] != len(tokens):
        raise ValueError(
            "plot_alignment: emissions must have the shape [T, C] with a token for each label, but "
            f"their shape is {list(emissions.shape)} and there are {len(tokens)} tokens"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot_alignment needs matplotlib, but it is not installed; pip install 'arcgrad[draw]'"
        ) from error
    posteriors = emissions.detach().cpu().float().softmax(-1).numpy()
    spelled = {span.token for span in path}
    rows = [c for c in range(len(tokens)) if c in spelled or posteriors[:, c].max() >= LEAST]
    frames = len(posteriors)

    width, line = max(6.0, 0.11 * frames + 1.0), 0.19
    heights = [*([] if image is None else [0.9]), line * len(rows) + 0.2]
    figure = Figure(figsize=(width, sum(heights) + 1.0), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    if title is not None:
        figure.suptitle(title, fontsize=10)
    if image is not None:
        # Drawn in the units of frames, so that columns stand above the frames they became.
        axes[0].imshow(image.cpu().numpy(), cmap="gray", aspect="auto", extent=(0, frames, 1, 0))
        axes[0].set_axis_off()
    heat = axes[-1]
    shown = heat.imshow(
        posteriors[:, rows].T,
        cmap="Blues",
        aspect="auto",
        vmin=0.0,
        vmax=1.0,
        extent=(0, frames, len(rows), 0),
        interpolation="nearest",
    )
    heat.set_yticks(np.arange(len(rows)) + 0.5, [tokens[c] for c in rows], fontsize=7)
    heat.set_xlabel("frame", fontsize=8)
    heat.tick_params(axis="x", labelsize=7)
    place = {c: row for row, c in enumerate(rows)}
    points = [(x, place[s.token] + 0.5) for s in path for x in (s.start + 0.1, s.end - 0.1)]
    heat.plot([x for x, _ in points], [y for _, y in points], color="tab:red", lw=0.8, alpha=0.6)
    for span in path:
        heat.hlines(
            place[span.token] + 0.5, span.start + 0.1, span.end - 0.1, color="tab:red", lw=2.5
        )
        for axis in axes[:-1]:
            axis.axvline(span.start, color="tab:red", lw=0.5, alpha=0.6)
    figure.colorbar(shown, ax=heat, label="probability", pad=0.01).ax.tick_params(labelsize=7)
    figure.savefig(file_name)
