"""Token graphs: how frames spell tokens, and the alignments that sequence criteria sum over."""

from arcgrad._core import (
    Tokens,
    alignment_graph,
    blank_graph,
    closed_graph,
    ctc_graph,
    token_graph,
)

__all__ = [
    "Tokens",
    "alignment_graph",
    "blank_graph",
    "closed_graph",
    "ctc_graph",
    "token_graph",
]
