"""Pictures of results, lattices and searches, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arcgrad import _core
from arcgrad._arguments import checked

from .hypothesis import Hypothesis


def new_axes(op: str, axes: Any, height: float = 3.0) -> Any:
    """The axes, or those of a new figure."""
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"{op}: pictures need matplotlib, but it is not installed; pip install 'arcgrad[draw]'"
        ) from error
    return Figure(figsize=(8, height), layout="constrained").add_subplot()


@checked
def plot_words(
    results: Hypothesis | Sequence[Hypothesis],
    background: Any = None,
    *,
    frame_shift: float = 1.0,
    axes: Any = None,
) -> Any:
    """Words over time: one row for each result, the first on top.

    Args:
        results: A result of decoding, or the n best of an example. Words with confidences are
            darker where they are more certain.
        background: An array ``[T, F]`` below the words, such as a spectrogram or emissions.
        frame_shift: The time of a frame, for the axis.
        axes: Axes of matplotlib; by default those of a new figure, which is ``axes.figure``.

    Returns:
        The axes.

    >>> import arcgrad as ag
    >>> word = ag.decoding.Word("cat", 2, 8, confidence=0.9)
    >>> axes = ag.decoding.plot_words(ag.decoding.Hypothesis("cat", -1.0, words=[word]))
    >>> axes.texts[0].get_text()
    'cat'
    """
    rows = [results] if isinstance(results, Hypothesis) else [*results]
    axes = new_axes("plot_words", axes, 1.5 + 0.3 * len(rows))
    end = max((word.end for row in rows for word in row.words), default=1)
    if background is not None:
        image = np.asarray(background, np.float64)
        if image.ndim != 2:
            raise ValueError(
                f"plot_words: the background must be [T, F], but its shape is {image.shape}"
            )
        end = len(image)
        finite = image[np.isfinite(image)]
        low = finite.min() if finite.size else 0.0
        axes.imshow(
            np.maximum(image, low).T,
            origin="lower",
            aspect="auto",
            cmap="Greys",
            alpha=0.5,
            extent=(0, end * frame_shift, -0.5, len(rows) - 0.5),
        )
    for row, result in enumerate(rows):
        y = len(rows) - 1 - row
        for word in result.words:
            left, width = word.start * frame_shift, (word.end - word.start) * frame_shift
            strength = 0.5 if word.confidence is None else 0.1 + 0.8 * word.confidence
            axes.barh(
                y, width, left=left, height=0.7, color="tab:blue", alpha=strength, edgecolor="black"
            )
            axes.text(left + width / 2, y, word.text, ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{row.score:.1f}" for row in rows[::-1]])
    axes.set(
        xlim=(0, end * frame_shift),
        ylim=(-0.5, len(rows) - 0.5),
        xlabel="frame" if frame_shift == 1.0 else "time",
        ylabel="score",
    )
    return axes


@checked
def plot_pruning(counts: Any, *, frame_shift: float = 1.0, axes: Any = None) -> Any:
    """What a search kept and pruned at each frame.

    Args:
        counts: From :meth:`CTCDecoder.pruning`.
        frame_shift: The time of a frame, for the axis.
        axes: Axes of matplotlib; by default those of a new figure.

    Returns:
        The axes.

    >>> import arcgrad as ag, numpy as np
    >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"], max_active=3)
    >>> axes = ag.decoding.plot_pruning(decoder.pruning(np.zeros((4, 3))))
    >>> axes.get_ylabel()
    'hypotheses'
    """
    axes = new_axes("plot_pruning", axes)
    times = np.arange(len(counts["hypotheses"])) * frame_shift
    kept, below = counts["hypotheses"], counts["below_beam"]
    axes.stackplot(
        times,
        *(kept, below, counts["beyond_active"]),
        labels=["kept", "below the beam", "beyond max_active"],
        step="post",
    )
    axes.legend(loc="upper right", fontsize=8)
    axes.set(xlabel="frame" if frame_shift == 1.0 else "time", ylabel="hypotheses")
    return axes


@checked
def plot_lattice(
    lattice: _core.Graph,
    words: Sequence[str],
    *,
    least: float = 0.01,
    frame_shift: float = 1.0,
    axes: Any = None,
) -> Any:
    """The words of a lattice with their posterior probabilities, over time.

    Args:
        lattice: From :meth:`CTCDecoder.lattice`.
        words: The names of its output labels, :attr:`CTCDecoder.words`.
        least: Words with smaller posteriors are left out.
        frame_shift: The time of a frame, for the axis.
        axes: Axes of matplotlib; by default those of a new figure.

    Returns:
        The axes. Each word is a line at the height of its posterior, from the mean frame at which
        the word before it ends to the one at which it ends.

    >>> import arcgrad as ag, numpy as np
    >>> decoder = ag.decoding.CTCDecoder(["", "|", "a", "b"], lexicon=["a", "ab"])
    >>> log_probs = np.log(0.1 + 0.6 * np.eye(4)[[2, 3, 1, 2]])
    >>> axes = ag.decoding.plot_lattice(decoder.lattice(log_probs), decoder.words)
    >>> sorted({text.get_text().split()[0] for text in axes.texts})
    ['a', 'ab']
    """
    found = word_posteriors(lattice, words)
    axes = new_axes("plot_lattice", axes)
    for word, begin, end, posterior in found:
        if posterior < least:
            continue
        axes.plot([begin * frame_shift, end * frame_shift], [posterior] * 2, linewidth=3)
        axes.text(
            (begin + end) / 2 * frame_shift,
            posterior + 0.02,
            f"{word} {posterior:.2f}",
            ha="center",
            fontsize=8,
        )
    axes.set(
        ylim=(0, 1.1),
        xlabel="frame" if frame_shift == 1.0 else "time",
        ylabel="posterior",
    )
    return axes


# Ends of a word that are this many frames apart or less are one word.
SAME_WORD = 3


def word_posteriors(
    lattice: _core.Graph, words: Sequence[str]
) -> list[tuple[str, float, float, float]]:
    """The words of a lattice with mean begin, mean end, and posterior probability."""
    posteriors = _core.arc_posteriors(lattice.detach()).weights_to_numpy()
    sources, targets, outputs = lattice.src_nodes(), lattice.dst_nodes(), lattice.olabels()
    is_frame = lattice.ilabels() >= 0
    count = lattice.num_nodes()
    frame = np.zeros(count, np.int64)
    # Sums over the paths to a node: their probability, and that times the frame where the word
    # before it ends. Arcs are in topological order.
    reached, begins = np.zeros(count), np.zeros(count)
    reached[list(lattice.start())] = 1.0
    ends: dict[int, list[tuple[int, float, float]]] = {}
    for src, dst, word, consumes, p in zip(
        sources, targets, outputs, is_frame, posteriors, strict=True
    ):
        frame[dst] = frame[src] + consumes
        begin = begins[src] / reached[src] if reached[src] > 0 else 0.0
        if word >= 0:
            ends.setdefault(int(word), []).append((int(frame[src]), begin, float(p)))
            begin = float(frame[src])
        reached[dst] += p
        begins[dst] += p * begin
    found = []
    for word, listed in ends.items():
        listed.sort()
        groups: list[list[tuple[int, float, float]]] = []
        for one in listed:
            if groups and one[0] - groups[-1][-1][0] <= SAME_WORD:
                groups[-1].append(one)
            else:
                groups.append([one])
        name = words[word] if word < len(words) else "<unk>"
        for group in groups:
            end, begin, p = np.array(group).T
            total = p.sum()
            if total > 0:
                found.append((name, float(begin @ p / total), float(end @ p / total), float(total)))
    return sorted(found, key=lambda one: one[1])
