"""The commands of ``arcgrad``, one module for each."""

from ._app import app

from . import experiments, pieces, reproduce, test, train  # isort: skip

__all__ = ["app", "experiments", "pieces", "reproduce", "test", "train"]
