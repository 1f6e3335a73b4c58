"""Options of flashlight-text 0.0.7, and a decoder with these options."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from arcgrad._arguments import checked

from .decoder import CTCDecoder

# flashlight adds decimal logarithms of KenLM to natural ones of the network.
LN10 = math.log(10)


@dataclass
class LexiconFreeDecoderOptions:
    """The options of flashlight's decoder without a lexicon.

    >>> from arcgrad.decoding.flashlight import LexiconFreeDecoderOptions
    >>> LexiconFreeDecoderOptions(beam_size=100, beam_size_token=30, beam_threshold=25.0).lm_weight
    0.0
    """

    beam_size: int
    beam_size_token: int
    beam_threshold: float
    lm_weight: float = 0.0
    sil_score: float = 0.0
    log_add: bool = False
    criterion_type: Any = None


@dataclass
class LexiconDecoderOptions:
    """The options of flashlight's decoder with a lexicon.

    >>> from arcgrad.decoding.flashlight import LexiconDecoderOptions
    >>> LexiconDecoderOptions(100, 30, 25.0, 2.0, 0.5).word_score
    0.5
    """

    beam_size: int
    beam_size_token: int
    beam_threshold: float
    lm_weight: float = 0.0
    word_score: float = 0.0
    unk_score: float = -math.inf
    sil_score: float = 0.0
    log_add: bool = False
    criterion_type: Any = None


class _LexiconDecoder(CTCDecoder):
    _search_options: ClassVar[dict[str, Any]] = CTCDecoder._search_options | {
        "like_flashlight": True
    }


@checked
def decoder(
    options: LexiconDecoderOptions | LexiconFreeDecoderOptions,
    tokens: Sequence[str],
    lexicon: str | os.PathLike[str] | Mapping[str, Any] | Sequence[str] | None = None,
    lm: Any = None,
    *,
    blank: int | str | None = None,
    separator: int | str | None = None,
) -> CTCDecoder:
    """A :class:`CTCDecoder` with the options of flashlight.

    Args:
        options: With ``LexiconFreeDecoderOptions`` there is no lexicon, and ``lm`` is of tokens.
            ``log_add`` adds the scores of all paths of a text.
        tokens: The names of the labels.
        lexicon: As for :class:`CTCDecoder`; a separator at the end of a spelling is implied.
        lm: As for :class:`CTCDecoder`. As in flashlight, ``lm_weight`` is the weight of decimal
            logarithms.
        blank: The blank, as for :class:`CTCDecoder`.
        separator: The silence token.

    >>> import numpy as np
    >>> from arcgrad.decoding.flashlight import LexiconDecoderOptions, decoder
    >>> options = LexiconDecoderOptions(100, 30, 25.0)
    >>> found = decoder(options, ["-", "|", "a", "b"], {"ab": ["a", "b", "|"]}, blank="-")
    >>> found.decode(np.log(0.1 + 0.6 * np.eye(4)[[2, 3, 1]]))[0][0].text
    'ab'
    """
    shared: dict[str, Any] = {
        "alpha": options.lm_weight / LN10,
        "blank": blank,
        "separator": separator,
        "max_active": options.beam_size,
        "max_tokens": options.beam_size_token,
        "beam": options.beam_threshold,
        "merge": "sum" if options.log_add else "max",
    }
    if isinstance(options, LexiconFreeDecoderOptions):
        if lexicon is not None:
            raise ValueError(
                "decoder: LexiconFreeDecoderOptions must have no lexicon, but it has one"
            )
        return CTCDecoder(tokens, lm, beta=0.0, **shared)
    if lexicon is None:
        raise ValueError("decoder: LexiconDecoderOptions must have a lexicon, but it is None")
    is_open = options.unk_score > -math.inf
    return _LexiconDecoder(
        tokens,
        lm,
        lexicon,
        # A word ends with a silence.
        beta=options.word_score + options.sil_score,
        silence_score=options.sil_score,
        open_vocabulary=is_open,
        unknown_score=options.unk_score if is_open else 0.0,
        **shared,
    )
