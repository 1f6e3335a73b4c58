"""N-grams: transition graphs, counts, language models and ARPA files."""

from ._table import END, START
from .arpa import load_arpa, save_arpa
from .backoff import backoff_graph
from .compact import CompactModel, load_compact
from .counting import count
from .counts import Counts
from .dense import dense_graph
from .model import Model
from .smoothing import estimate

__all__ = [
    "END",
    "START",
    "CompactModel",
    "Counts",
    "Model",
    "backoff_graph",
    "count",
    "dense_graph",
    "estimate",
    "load_arpa",
    "load_compact",
    "save_arpa",
]
