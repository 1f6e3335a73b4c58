"""Strings as graphs: acceptors, maps between strings, rewrite rules, and their results as text.

``symbols`` says how a string becomes labels:

- ``"bytes"``: the labels are the bytes of its UTF-8 form;
- ``"unicode"``: the labels are the code points of its characters;
- a :class:`SymbolTable`: the string is cut at white space, and each part is a symbol. A list of
  symbols is taken as it is.
"""

from .graphs import acceptor, cross, rewrite, sigma_star, string_map
from .results import accepts, apply, best, best_strings
from .symbols import BEGIN, END

__all__ = [
    "BEGIN",
    "END",
    "acceptor",
    "accepts",
    "apply",
    "best",
    "best_strings",
    "cross",
    "rewrite",
    "sigma_star",
    "string_map",
]
