"""The report of one or several runs: a page that needs no network and no other file."""

from .page import write_report

__all__ = ["write_report"]
