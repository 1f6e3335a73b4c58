"""Decoding with lexicons, language models and hotwords, composed on the fly, and alignment."""

from ._calibration import Calibration, calibration, correct_words
from ._endpoint import ENDPOINT_RULES, EndpointRule
from ._models import LanguageModel
from ._pictures import plot_lattice, plot_pruning, plot_words
from ._rescoring import Slot, confusion_network, minimum_risk, rescore
from .alignment import CharSpan, WordAlignment, WordSpan, align_words
from .decoder import CTCDecoder
from .hypothesis import Hypothesis, Partial, Token, Word
from .stream import Stream

__all__ = [
    "ENDPOINT_RULES",
    "CTCDecoder",
    "Calibration",
    "CharSpan",
    "EndpointRule",
    "Hypothesis",
    "LanguageModel",
    "Partial",
    "Slot",
    "Stream",
    "Token",
    "Word",
    "WordAlignment",
    "WordSpan",
    "align_words",
    "calibration",
    "confusion_network",
    "correct_words",
    "minimum_risk",
    "plot_lattice",
    "plot_pruning",
    "plot_words",
    "rescore",
]
