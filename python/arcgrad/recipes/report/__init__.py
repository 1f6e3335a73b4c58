"""The report of runs, a page without external files, and the pictures and tables it consists of."""

from .markdown import markdown_table
from .page import write_report
from .plots import blocks, draw_pieces, draw_prediction, plot_alignment
from .word_pieces import (
    BINS,
    comparison_table,
    draw_decomposition,
    draw_histograms,
    histogram,
)

__all__ = [
    "BINS",
    "blocks",
    "comparison_table",
    "draw_decomposition",
    "draw_histograms",
    "draw_pieces",
    "draw_prediction",
    "histogram",
    "markdown_table",
    "plot_alignment",
    "write_report",
]
