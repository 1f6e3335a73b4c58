"""Token graphs: the alignments that sequence criteria sum over."""

from arcgrad._core import ctc_graph as ctc_graph

__all__ = ["ctc_graph"]
