"""The interface of torchaudio: ``from arcgrad.torch.torchaudio import ctc_decoder, forced_align``.

Programs switch by this import. Differences are listed in the guides on decoding and alignment.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arcgrad import _core, _files
from arcgrad._arguments import checked
from arcgrad.decoding.flashlight import (
    LexiconDecoderOptions,
    LexiconFreeDecoderOptions,
)
from arcgrad.decoding.flashlight import decoder as with_options
from arcgrad.decoding.hypothesis import Hypothesis

from ._leaves import borrow
from .words import to_numpy


class CTCHypothesis(NamedTuple):
    """A result: tokens with a silence at both ends, words, the score, and a frame per token.

    >>> import torch
    >>> from arcgrad.torch.torchaudio import CTCHypothesis
    >>> CTCHypothesis(torch.tensor([1]), ["a"], -0.5, torch.tensor([0])).words
    ['a']
    """

    tokens: Tensor
    words: list[str]
    score: float
    timesteps: Tensor


@checked
def ctc_decoder(
    lexicon: str | os.PathLike[str] | None,
    tokens: str | os.PathLike[str] | Sequence[str],
    lm: Any = None,
    lm_dict: None = None,
    nbest: int = 1,
    beam_size: int = 50,
    beam_size_token: int | None = None,
    beam_threshold: float = 50,
    lm_weight: float = 2,
    word_score: float = 0,
    unk_score: float = -math.inf,
    sil_score: float = 0,
    log_add: bool = False,
    blank_token: str = "-",
    sil_token: str = "|",
    unk_word: str = "<unk>",
) -> CTCDecoder:
    """A decoder with the interface of torchaudio.

    Args:
        lexicon: A file with a word and its tokens on each line, or None.
        tokens: The tokens, or a file with one on each line.
        lm: An ARPA file, or anything else that :class:`arcgrad.decoding.CTCDecoder` takes.
        lm_dict: Must be None: the words of a model are its own.
        nbest: The number of results.
        beam_size: The largest number of hypotheses.
        beam_size_token: The largest number of tokens that are read in a frame; by default all.
        beam_threshold: The largest distance of a hypothesis to the best one.
        lm_weight: The weight of the model, whose logarithms are decimal.
        word_score: The score of a word.
        unk_score: The score of an unknown word; by default there are none.
        sil_score: The score of a silence token.
        log_add: Whether the score is the sum over all paths.
        blank_token: The blank.
        sil_token: The token between words.
        unk_word: The name of unknown words in results.

    >>> import torch
    >>> from arcgrad.torch.torchaudio import ctc_decoder
    >>> decoder = ctc_decoder(None, ["-", "|", "a", "b"])
    >>> found = decoder(torch.eye(4)[[2, 0, 3]].mul(4).log_softmax(-1)[None])
    >>> decoder.idxs_to_tokens(found[0][0].tokens)
    ['|', 'a', 'b', '|']
    """
    if isinstance(tokens, str | os.PathLike):
        tokens = _files.read_text("ctc_decoder", tokens).split("\n")
        tokens = [token for token in tokens if token]
    count = len(tokens) if beam_size_token is None else beam_size_token
    options: LexiconDecoderOptions | LexiconFreeDecoderOptions
    if lexicon is None:
        options = LexiconFreeDecoderOptions(
            beam_size, count, beam_threshold, lm_weight, sil_score, log_add
        )
    else:
        options = LexiconDecoderOptions(
            *(beam_size, count, beam_threshold, lm_weight, word_score, unk_score, sil_score),
            log_add,
        )
    return CTCDecoder(options, list(tokens), lexicon, lm, nbest, blank_token, sil_token, unk_word)


class CTCDecoder:
    """The decoder that :func:`ctc_decoder` returns: a function of emissions and lengths."""

    def __init__(
        self,
        options: LexiconDecoderOptions | LexiconFreeDecoderOptions,
        tokens: list[str],
        lexicon: str | os.PathLike[str] | None,
        lm: Any,
        nbest: int,
        blank: str,
        silence: str,
        unknown: str,
    ) -> None:
        self._tokens, self._nbest, self._unknown = tokens, nbest, unknown
        self._has_words = lexicon is not None
        self._decoder = with_options(options, tokens, lexicon, lm, blank=blank, separator=silence)
        self._blank, self._silence = tokens.index(blank), tokens.index(silence)

    def __call__(
        self, emissions: Tensor, lengths: Tensor | None = None
    ) -> list[list[CTCHypothesis]]:
        """The results of each example of emissions ``[B, T, C]``."""
        found = self._decoder.decode(to_numpy(emissions), to_numpy(lengths), self._nbest)
        frames = [emissions.shape[1]] * len(found) if lengths is None else lengths.tolist()
        return [
            [self._hypothesis(result, count) for result in results]
            for results, count in zip(found, frames, strict=True)
        ]

    def idxs_to_tokens(self, idxs: Tensor) -> list[str]:
        """The names of tokens."""
        return [self._tokens[i] for i in idxs.tolist()]

    def _hypothesis(self, result: Hypothesis, num_frames: int) -> CTCHypothesis:
        # One label per frame, between two silences.
        labels = [self._blank] * num_frames
        for token in result.tokens:
            labels[token.start : token.end] = [token.label] * (token.end - token.start)
        labels = [self._silence, *labels, self._silence]
        begins = [0, *(t for t, (a, b) in enumerate(itertools.pairwise(labels), 1) if a != b)]
        begins = [t for t in begins if labels[t] != self._blank]
        words = [word.text if word.is_known else self._unknown for word in result.words]
        return CTCHypothesis(
            torch.tensor([labels[t] for t in begins], dtype=torch.long),
            words if self._has_words else [],
            result.score,
            torch.tensor(begins, dtype=torch.int32),
        )


@dataclass
class TokenSpan:
    """A token with its frames, as :func:`merge_tokens` returns it.

    >>> from arcgrad.torch.torchaudio import TokenSpan
    >>> len(TokenSpan(token=3, start=2, end=5, score=-0.1))
    3
    """

    token: int
    start: int
    end: int
    score: float

    def __len__(self) -> int:
        """The number of frames."""
        return self.end - self.start


@checked
def forced_align(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    blank: int = 0,
) -> tuple[Tensor, Tensor]:
    """The label of each frame on the best alignment of a CTC target, and its score.

    Args:
        log_probs: Log-probabilities ``[B, T, C]``; a batch may be larger than 1.
        targets: Labels ``[B, L]``, int32 or int64.
        input_lengths: The number of frames of each example.
        target_lengths: The number of labels of each target.
        blank: The blank.

    Returns:
        Labels ``[B, T]`` of the type of the targets, and scores ``[B, T]`` of the type of the
        log-probabilities, on the device of these. Frames beyond a length have the blank and 0.

    Raises:
        ValueError: If arguments do not fit, or a target is too long for its frames.

    >>> import torch
    >>> from arcgrad.torch.torchaudio import forced_align
    >>> log_probs = torch.eye(3)[[0, 1, 1, 0, 2]].mul(9).log_softmax(-1)[None]
    >>> forced_align(log_probs, torch.tensor([[1, 2]]))[0]
    tensor([[0, 1, 1, 0, 2]])
    """
    op = "forced_align"
    if log_probs.dim() != 3 or targets.dim() != 2:
        raise ValueError(
            f"{op}: log_probs must have 3 dimensions and targets 2, but they have "
            f"{log_probs.dim()} and {targets.dim()}"
        )
    if targets.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{op}: targets must be int32 or int64, but they are {targets.dtype}")
    batch, frames, num_labels = log_probs.shape
    if len(targets) != batch:
        raise ValueError(
            f"{op}: there must be a target for each of {batch} examples, but there are "
            f"{len(targets)}"
        )
    if not 0 <= blank < num_labels:
        raise ValueError(
            f"{op}: the blank must be a label from 0 to {num_labels - 1}, but it is {blank}"
        )
    counts = _lengths(op, "input_lengths", input_lengths, batch, frames)
    sizes = _lengths(op, "target_lengths", target_lengths, batch, targets.shape[1])
    labels = [row[:size] for row, size in zip(targets.tolist(), sizes, strict=True)]
    graphs = borrow(op, log_probs, counts, True, is_final=True)
    if batch == 1 and counts[0] == frames:
        (found,) = _core.align_frames(graphs, labels, blank)
        if found is not None:
            path, score = (torch.from_numpy(each)[None] for each in found)
            return (
                path.to(log_probs.device, targets.dtype),
                score.to(log_probs.device, log_probs.dtype),
            )
    paths = torch.full((batch, frames), blank, dtype=targets.dtype)
    scores = torch.zeros((batch, frames), dtype=log_probs.dtype)
    for i, found in enumerate(_core.align_frames(graphs, labels, blank)):
        if found is None:
            repeats = sum(a == b for a, b in itertools.pairwise(labels[i]))
            raise ValueError(
                f"{op}: a target must fit into its frames, but that of example {i} has "
                f"{len(labels[i])} labels and {repeats} repeats for {counts[i]} frames"
            )
        paths[i, : counts[i]] = torch.from_numpy(found[0])
        scores[i, : counts[i]] = torch.from_numpy(found[1])
    return paths.to(log_probs.device), scores.to(log_probs.device)


def _lengths(op: str, name: str, lengths: Tensor | None, batch: int, most: int) -> list[int]:
    if lengths is None:
        return [most] * batch
    counts = torch.as_tensor(lengths).reshape(-1).tolist()
    if len(counts) != batch:
        raise ValueError(f"{op}: {name} must have {batch} entries, but it has {len(counts)}")
    for count in counts:
        if not 0 <= count <= most:
            raise ValueError(f"{op}: {name} must be between 0 and {most}, but one is {count}")
    return counts


@checked
def merge_tokens(tokens: Tensor, scores: Tensor, blank: int = 0) -> list[TokenSpan]:
    """The spans of the tokens of a path without repeats and blanks.

    Args:
        tokens: The label of each frame, from :func:`forced_align`.
        scores: The score of each frame.
        blank: The blank.

    Raises:
        ValueError: If they do not have one dimension and the same length.

    >>> import torch
    >>> from arcgrad.torch.torchaudio import merge_tokens
    >>> merge_tokens(torch.tensor([0, 1, 1, 0, 2]), torch.tensor([0.0, -1, -3, 0, -2]))
    [TokenSpan(token=1, start=1, end=3, score=-2.0), TokenSpan(token=2, start=4, end=5, score=-2.0)]
    """
    op = "merge_tokens"
    if tokens.dim() != 1 or scores.dim() != 1:
        raise ValueError(
            f"{op}: tokens and scores must have one dimension, but they have {tokens.dim()} and "
            f"{scores.dim()}"
        )
    if len(tokens) != len(scores):
        raise ValueError(
            f"{op}: tokens and scores must have the same length, but they have {len(tokens)} and "
            f"{len(scores)}"
        )
    values, spans, start = scores.tolist(), [], 0
    for token, group in itertools.groupby(tokens.tolist()):
        end = start + sum(1 for _ in group)
        if token != blank:
            spans.append(TokenSpan(token, start, end, math.fsum(values[start:end]) / (end - start)))
        start = end
    return spans
