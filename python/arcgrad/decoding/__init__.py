"""Decoding with lexicons, language models and hotwords, composed on the fly, and alignment."""

from .alignment import CharSpan, WordAlignment, WordSpan, align_words
from .decoder import CTCDecoder, Stream
from .hypothesis import Hypothesis, Partial, Token, Word

__all__ = [
    "CTCDecoder",
    "CharSpan",
    "Hypothesis",
    "Partial",
    "Stream",
    "Token",
    "Word",
    "WordAlignment",
    "WordSpan",
    "align_words",
]
