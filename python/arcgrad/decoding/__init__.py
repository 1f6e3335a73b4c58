"""Decoding with lexicons, language models and hotwords, composed on the fly."""

from .decoder import CTCDecoder, Stream
from .hypothesis import Hypothesis, Partial, Token, Word

__all__ = ["CTCDecoder", "Hypothesis", "Partial", "Stream", "Token", "Word"]
