"""Lexicons: word pieces spelled by graphemes, and words spelled by tokens.

Functions return graphs; methods of :class:`Lexicon` return plain values.
"""

from .pieces import Lexicon, decompositions, lexicon_graph, piece_graph
from .words import word_lexicon_graph

__all__ = ["Lexicon", "decompositions", "lexicon_graph", "piece_graph", "word_lexicon_graph"]
