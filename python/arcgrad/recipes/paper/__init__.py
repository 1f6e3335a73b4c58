"""The tables and figures of the paper, made from trained experiments."""

from .differences import differences
from .reproduction import reproduce
from .tables import PAPER_TABLES

__all__ = ["PAPER_TABLES", "differences", "reproduce"]
