"""Learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .page_runs import PageRun
from .pictures import Picture, drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The ratio of the largest to the smallest value above which the axis is logarithmic.
WIDE = 8.0

CURVES = (
    ("loss", "loss per letter", ("train_loss", "validation_loss")),
    ("CER", "CER in percent", ("train_cer", "validation_cer")),
    ("WER", "WER in percent", ("train_wer", "validation_wer")),
    ("learning rate", "learning rate", ("learning_rate",)),
)


@dataclass(frozen=True)
class _Curves:
    """The curves of one metric."""

    title: str
    picture: Picture


def curves(runs: Sequence[PageRun]) -> list[_Curves]:
    """Return the learning curves; an empty list if no run has completed an epoch."""
    if not any(run.history for run in runs):
        return []
    return [
        _Curves(
            title,
            drawn(partial(_draw_curves, runs, axis, keys), _curves_alt(runs, title, keys)),
        )
        for title, axis, keys in CURVES
    ]


def _values(run: PageRun, key: str) -> list[tuple[int, float]]:
    rows = [(int(row["epoch"]), row[key]) for row in run.history if key in row]
    return [(epoch, value) for epoch, value in rows if math.isfinite(value)]


def _draw_curves(runs: Sequence[PageRun], axis: str, keys: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    figure = Figure(figsize=(4.8, 3.0), layout="constrained")
    axes: Any = figure.subplots()
    for run in runs:
        for key in keys:
            points = _values(run, key)
            axes.plot(
                [epoch for epoch, _ in points],
                [value for _, value in points],
                linestyle="--" if key.startswith("train") else "-",
                color=run.color,
                marker="o",
                markersize=4,
                linewidth=1.5,
            )
    values = [value for run in runs for key in keys for _, value in _values(run, key)]
    least, greatest = min(values, default=0.0), max(values, default=0.0)
    axes.set_xlabel("epoch")
    if len(keys) > 1 and least > 0 and greatest > WIDE * least:
        axis += ", log scale"
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    elif least >= 0:
        axes.set_ylim(0.0, 1.05 * greatest or 1.0)
    axes.set_ylabel(axis)
    axes.set_xlim(0.5, max(len(run.history) for run in runs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _curves_alt(runs: Sequence[PageRun], title: str, keys: Sequence[str]) -> str:
    parts = []
    for run in runs:
        for key in keys:
            values = _values(run, key)
            if values:
                kind = f" {key.split('_')[0]}" if len(keys) > 1 else ""
                first, last = values[0][1], values[-1][1]
                parts.append(f"{run.name}{kind} from {first:.4g} to {last:.4g}")
    return f"{title} by epoch: {'; '.join(parts) or 'no numbers'}"
