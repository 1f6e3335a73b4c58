"""The commands of ``arcgrad``, one module for each."""

from ._app import app

from . import (  # isort: skip
    align,
    decode,
    experiments,
    pieces,
    prepare,
    report,
    reproduce,
    test,
    train,
)

__all__ = [
    "align",
    "app",
    "decode",
    "experiments",
    "pieces",
    "prepare",
    "report",
    "reproduce",
    "test",
    "train",
]
