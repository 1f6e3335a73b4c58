"""Decoding: best label sequences, forced alignment, and beam search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import arcgrad as ag
from arcgrad import _core
from arcgrad._arguments import checked

from ._leaves import borrow
from ._targets import Targets


class TokenSpan(NamedTuple):
    """The frames of a token of a target, from ``start`` up to but not including ``end``.

    ``score`` is the mean of the token's emissions over these frames.

    >>> import arcgrad.torch as agt
    >>> span = agt.TokenSpan(token=3, start=2, end=5, score=-0.1)
    >>> span.end - span.start
    3
    """

    token: int
    start: int
    end: int
    score: float


class LabelSequence(NamedTuple):
    """A result of :func:`beam_search`: output labels without epsilons, and the best path's score.

    >>> import arcgrad.torch as agt
    >>> agt.LabelSequence(labels=[1, 2], score=-3.5).labels
    [1, 2]
    """

    labels: list[int]
    score: float


def _spells_everything(tokens: ag.tokens.Tokens) -> bool:
    """Whether every sequence of frames spells a sequence of tokens."""
    limits = (tokens.min_frames, tokens.max_frames, tokens.min_blanks, tokens.max_blanks)
    return tokens.blank != "forced" and limits == (1, None, 0, None) and not tokens.overrides


def _num_labels(emissions: Tensor) -> int:
    return emissions.shape[-1] if emissions.dim() else 1


def _check_labels(op: str, emissions: Tensor, tokens: ag.tokens.Tokens) -> None:
    if emissions.dim() and emissions.shape[-1] != tokens.num_labels:
        raise ValueError(
            f"{op}: emissions must have {tokens.num_labels} labels, as the tokens have, but they "
            f"have {emissions.shape[-1]}"
        )


def best_labels(
    op: str,
    emissions: Tensor,
    lengths: Any,
    tokens: ag.tokens.Tokens,
    transitions: ag.Graph | None,
) -> list[list[int]]:
    """The tokens that the best path of each example spells; empty without a path."""
    # Paths with the same frames may differ in their tokens; collapse always chooses the same.
    return [
        [] if frames is None else tokens.collapse(frames)
        for frames in best_frames(op, emissions, lengths, tokens, transitions)
    ]


def best_frames(
    op: str,
    emissions: Tensor,
    lengths: Any,
    tokens: ag.tokens.Tokens,
    transitions: ag.Graph | None,
) -> list[list[int] | None]:
    """The labels of the best path of each example by frame; None if there is no path."""
    _check_labels(op, emissions, tokens)
    with torch.no_grad(), ag.no_grad():
        spells_everything = _spells_everything(tokens)
        if spells_everything and transitions is None:
            return _best_of_each_frame(op, emissions, lengths)
        graph = transitions
        if not spells_everything:
            graph = tokens.graph()
            if transitions is not None:
                graph = ag.compose(transitions, graph)
        assert graph is not None
        paths = ag.viterbi_path(ag.compose(borrow(op, emissions, lengths, True), graph))
        return [_labels(path.ilabels()) if path.num_nodes() else None for path in paths]


def _labels(labels: Any) -> list[int]:
    kept: list[int] = labels[labels != ag.epsilon].tolist()
    return kept


def _best_of_each_frame(op: str, emissions: Tensor, lengths: Any) -> list[list[int] | None]:
    """The best label of each frame, the smallest among equal ones; None without a path."""
    found: list[list[int] | None] = []
    for i, graph in enumerate(borrow(op, emissions, lengths, True, is_final=True)):
        frames = np.asarray(graph.weights_view())
        if frames.size == 0:
            found.append(None if frames.shape[0] else [])
            continue
        labels = frames.argmax(-1)
        best = np.take_along_axis(frames, labels[:, None], 1)[:, 0]
        bad = np.flatnonzero(~(best < np.inf))
        if bad.size:
            raise ValueError(
                f"{op} (element {i}): the emission of label {labels[bad[0]]} at frame {bad[0]} is "
                f"{best[bad[0]]}, but it must be finite or -inf"
            )
        found.append(None if best.min() == -np.inf else labels.tolist())
    return found


@checked
def viterbi(
    emissions: Tensor,
    lengths: Any = None,
    *,
    tokens: ag.tokens.Tokens | None = None,
    transitions: ag.Graph | None = None,
    blank: int = 0,
) -> list[list[int]]:
    """The tokens that the best path of each example spells.

    Args:
        emissions: Scores ``[B, T, C]`` or ``[T, C]``.
        lengths: The number of frames of each example.
        tokens: How frames spell tokens; by default those of CTC with ``blank``.
        transitions: A graph over labels whose scores are added, such as an n-gram model.
        blank: The label of the blank, if no tokens are given.

    Returns:
        One list of labels per example; it is empty if there is no path at all. Among equal scores
        the smallest labels win.

    Raises:
        ValueError: If the emissions have another number of labels than the tokens.

    >>> import torch, arcgrad.torch as agt
    >>> agt.viterbi(torch.eye(4)[torch.tensor([[1, 1, 0, 1, 2]])])
    [[1, 1, 2]]
    """
    op = "viterbi"
    if tokens is None:
        tokens = ag.tokens.Tokens.ctc(_num_labels(emissions), blank)
    return best_labels(op, emissions, lengths, tokens, transitions)


@checked
def forced_align(
    emissions: Tensor,
    targets: Any,
    lengths: Any = None,
    target_lengths: Any = None,
    *,
    tokens: ag.tokens.Tokens | None = None,
    transitions: ag.Graph | None = None,
    blank: int = 0,
) -> list[list[TokenSpan]]:
    """The best alignment of each example: the frames of every token of its target.

    Args:
        emissions: Scores ``[B, T, C]`` or ``[T, C]``, most often log-probabilities.
        targets: Padded ``[B, S]``, concatenated, or a list of label sequences. A target may also be
            an acceptor of several sequences, such as from :func:`arcgrad.lexicon.decompositions`;
            the best of them is aligned.
        lengths: The number of frames of each example.
        target_lengths: The number of labels of each target.
        tokens: How frames spell tokens; by default those of CTC with ``blank``.
        transitions: A graph over labels whose scores are added, such as an n-gram model.
        blank: The label of the blank, if no tokens are given.

    Returns:
        For each example one :class:`TokenSpan` per token of its target. The list is empty if no
        alignment fits.

    Raises:
        ValueError: If labels or lengths do not fit, or a target is a transducer.

    >>> import torch, arcgrad.torch as agt
    >>> log_probs = torch.eye(3)[torch.tensor([0, 1, 1, 0, 2])].mul(9).log_softmax(-1)
    >>> [(span.token, span.start, span.end) for span in agt.forced_align(log_probs, [1, 2])[0]]
    [(1, 1, 3), (2, 4, 5)]
    """
    op = "forced_align"
    is_ctc = tokens is None and transitions is None
    if tokens is None:
        tokens = ag.tokens.Tokens.ctc(_num_labels(emissions), blank)
    _check_labels(op, emissions, tokens)
    batch = 1 if emissions.dim() == 2 else emissions.shape[0]
    if batch == 0:
        return []
    read = Targets(op, targets, target_lengths, batch, emissions.shape[-1])
    if is_ctc and not any(isinstance(target, ag.Graph) for target in read.sequences()):
        graphs = borrow(op, emissions, lengths, True, is_final=True)
        found = _core.align_batch(op, graphs, read.label_sequences(), blank)
        return [list(map(TokenSpan._make, spans)) for spans in found]
    acceptors = [
        target if isinstance(target, ag.Graph) else ag.chain_graph(target)
        for target in read.sequences()
    ]
    for i, target in enumerate(acceptors):
        if not target.is_acceptor():
            raise ValueError(
                f"{op}: targets must be acceptors of tokens, but input and output labels of some "
                f"arc of target {i} differ; use project_input"
            )
    with torch.no_grad(), ag.no_grad():
        graphs = borrow(op, emissions, lengths, True)
        alignments = ag.tokens.alignment_graph(tokens, acceptors, outputs=True)
        if transitions is not None:
            alignments = ag.compose(transitions, alignments)
        paths = ag.viterbi_path(ag.compose(graphs, alignments))
    return [_spans(path, graph) for path, graph in zip(paths, graphs, strict=True)]


def _spans(path: ag.Graph, emissions: ag.Graph) -> list[TokenSpan]:
    frames, outputs = path.ilabels(), path.olabels()
    is_frame = frames != ag.epsilon
    # An alignment has each token as the output label of its first frame.
    is_begin = outputs != ag.epsilon
    tokens = outputs[is_begin]
    if not tokens.size:
        return []
    begins = (np.cumsum(is_frame) - 1)[is_begin]
    frames = frames[is_frame]
    # A token ends where another label or the next token begins.
    changes = np.append(np.flatnonzero(np.diff(frames)) + 1, len(frames))
    ends = changes[np.searchsorted(changes, begins, side="right")]
    ends = np.minimum(ends, np.append(begins[1:], len(frames)))
    scores = np.zeros(len(frames) + 1)
    scores[:-1] = emissions.weights_view()[np.arange(len(frames)), frames]
    sums = np.add.reduceat(scores, np.stack([begins, ends], 1).ravel())[::2]
    columns = tokens, begins, ends, sums / (ends - begins)
    return list(map(TokenSpan, *(column.tolist() for column in columns)))


@checked
def beam_search(
    emissions: Tensor,
    graph: ag.Graph | Sequence[ag.Graph] | None = None,
    *,
    lengths: Any = None,
    beam: float = math.inf,
    max_active: int | None = None,
    prune: float | None = None,
    nbest: int | None = None,
    blank: int = 0,
) -> Any:
    """Beam search for the best outputs of a graph: a lexicon, a language model, or both composed.

    Args:
        emissions: Scores ``[B, T, C]`` or ``[T, C]``.
        graph: A graph whose input labels are labels of the emissions, or one per example. By
            default the token graph of CTC with ``blank``. It may have cycles and epsilon arcs.
        lengths: The number of frames of each example.
        beam: Nodes whose score is this much below the best of their frame are pruned.
        max_active: The largest number of nodes to keep at each frame.
        prune: Arcs of the lattice whose best path is this much below the best path are pruned.
        nbest: The number of different outputs to return. By default the search returns lattices.
        blank: The label of the blank, if no graph is given.

    Returns:
        With ``nbest``, for each example a list of :class:`LabelSequence`, best first. Otherwise a
        lattice for each example: the graph of all paths that were not pruned, which can be
        rescored, intersected and differentiated. If the beam is so narrow that no path is left, the
        list or the lattice is empty. With the default beam the search is exact.

    >>> import torch, arcgrad.torch as agt
    >>> x = torch.eye(4)[torch.tensor([[1, 1, 0, 1, 2]])].mul(5)
    >>> agt.beam_search(x, beam=8.0, nbest=2)[0][0].labels
    [1, 1, 2]
    """
    op = "beam_search"
    if graph is None:
        graph = ag.tokens.Tokens.ctc(_num_labels(emissions), blank).graph()
    graphs = borrow(op, emissions, lengths, True)
    lattices = ag.beam_search(graph, graphs, beam=beam, max_active=max_active, lattice_beam=prune)
    if nbest is None:
        return lattices
    with ag.no_grad():
        found = ag.best_paths(lattices, nbest, unique=True)
    return [
        [LabelSequence(_labels(path.olabels()), ag.viterbi_score(path).item()) for path in paths]
        for paths in found
    ]
