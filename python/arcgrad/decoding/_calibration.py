"""How well confidences agree with correctness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcgrad._arguments import checked

from ._word_errors import align
from .hypothesis import Hypothesis


@checked
def correct_words(result: Hypothesis, reference: str | Sequence[str]) -> list[bool]:
    """Which words of a result are right, by an alignment with the fewest errors.

    Args:
        result: A result of :meth:`CTCDecoder.decode`.
        reference: The true text, or its words.

    >>> import arcgrad as ag
    >>> words = [ag.decoding.Word(text, 0, 1) for text in ["the", "cat", "sits"]]
    >>> found = ag.decoding.Hypothesis("the cat sits", -2.0, words=words)
    >>> ag.decoding.correct_words(found, "the cat")
    [True, True, False]
    """
    wanted = reference.split() if isinstance(reference, str) else [*reference]
    found = [word.text for word in result.words]
    pairs = {j: i for i, j in align(wanted, found) if j is not None}
    places = [pairs[j] for j in range(len(found))]
    return [i is not None and wanted[i] == word for i, word in zip(places, found, strict=True)]


@dataclass(frozen=True)
class Calibration:
    """Confidences in bins; see :func:`calibration`.

    Attributes:
        edges: The edges of the bins, from 0 to 1.
        counts: The number of values in each bin.
        confidences: The mean confidence in each bin; NaN if it is empty.
        accuracies: The fraction of correct values in each bin; NaN if it is empty.
        expected_error: The mean difference between both, weighted by the counts (expected
            calibration error).
        largest_error: The largest difference (maximum calibration error).
        brier: The mean square of confidence minus correctness.
        cross_entropy: The normalized cross entropy: 1 if confidences are 0 or 1 and right, 0 if
            they are no better than the mean, negative if they are worse. NaN if all or none are
            correct.

    >>> import arcgrad as ag
    >>> ag.decoding.calibration([0.9, 0.9, 0.2], [True, True, False], bins=5).counts.tolist()
    [0, 1, 0, 0, 2]
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidences: NDArray[np.float64]
    accuracies: NDArray[np.float64]
    expected_error: float
    largest_error: float
    brier: float
    cross_entropy: float

    def plot(self, axes: Any = None) -> Any:
        """A reliability diagram: the accuracy of each bin over its confidence.

        Needs matplotlib. The diagonal is a perfect calibration; numbers are those of words.

        Args:
            axes: Axes of matplotlib; by default those of a new figure.

        Returns:
            The axes.

        >>> import arcgrad as ag
        >>> axes = ag.decoding.calibration([0.9, 0.8, 0.2], [True, True, False]).plot()
        >>> axes.get_xlabel()
        'confidence'
        """
        from ._pictures import new_axes

        axes = new_axes("plot", axes)
        width = np.diff(self.edges)
        full = self.counts > 0
        axes.bar(
            *(self.edges[:-1][full], self.accuracies[full], width[full]),
            align="edge",
            edgecolor="white",
        )
        axes.plot([0, 1], [0, 1], "--", color="gray")
        axes.plot(self.confidences[full], self.accuracies[full], "o", color="black", markersize=3)
        for left, size, height, count in zip(
            self.edges[:-1][full],
            width[full],
            self.accuracies[full],
            self.counts[full],
            strict=True,
        ):
            axes.text(left + size / 2, height, str(count), ha="center", va="bottom", fontsize=7)
        axes.set(
            xlim=(0, 1),
            ylim=(0, 1.05),
            xlabel="confidence",
            ylabel="fraction correct",
            title=f"expected calibration error {self.expected_error:.1%}",
        )
        return axes


@checked
def calibration(
    confidences: Iterable[float], correct: Iterable[bool], bins: int = 10
) -> Calibration:
    """Compares confidences with correctness, in bins of equal width.

    Args:
        confidences: Values from 0 to 1.
        correct: For each whether it is right; see :func:`correct_words`.
        bins: The number of bins.

    Raises:
        ValueError: If there are no values, not as many of both, or values outside of 0 to 1.

    >>> import arcgrad as ag
    >>> found = ag.decoding.calibration([0.95, 0.85, 0.55, 0.45], [True, True, True, False])
    >>> round(found.expected_error, 3)
    0.275
    """
    values = np.array([*confidences], np.float64)
    right = np.array([*correct], np.float64)
    if values.ndim != 1 or values.shape != right.shape or not values.size:
        raise ValueError(
            "calibration: there must be one or more confidences, and as many marks of correctness, "
            f"but there are {len(values)} and {len(right)}"
        )
    if not ((values >= 0) & (values <= 1)).all():
        bad = values[~((values >= 0) & (values <= 1))][0]
        raise ValueError(f"calibration: confidences must be from 0 to 1, but one is {bad}")
    if bins < 1:
        raise ValueError(f"calibration: bins must be 1 or more, but it is {bins}")
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, values, bins) / counts
        accuracies = np.bincount(place, right, bins) / counts
    errors = np.abs(means - accuracies)
    return Calibration(
        edges,
        counts,
        means,
        accuracies,
        float(np.nansum(errors * counts) / counts.sum()),
        float(np.nanmax(errors)),
        float(np.square(values - right).mean()),
        _cross_entropy(values, right),
    )


def _cross_entropy(values: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    mean = right.mean()
    if mean in (0, 1):
        return float("nan")
    least = 1e-10  # wrong values of 0 and 1 count as this
    used = np.clip(values, least, 1 - least)
    own = np.where(right > 0, np.log(used), np.log1p(-used)).sum()
    base = right.sum() * np.log(mean) + (1 - right).sum() * np.log1p(-mean)
    return float((own - base) / -base)
