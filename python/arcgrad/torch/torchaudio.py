"""The interface of torchaudio's CTC decoder: ``from arcgrad.torch.torchaudio import ctc_decoder``.

Programs switch by this import. Differences are listed in the guide on decoding.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arcgrad import _files
from arcgrad._arguments import checked
from arcgrad.decoding.flashlight import (
    LexiconDecoderOptions,
    LexiconFreeDecoderOptions,
)
from arcgrad.decoding.flashlight import decoder as with_options
from arcgrad.decoding.hypothesis import Hypothesis

from .decoding import _to_numpy


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
        found = self._decoder.decode(_to_numpy(emissions), _to_numpy(lengths), self._nbest)
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
