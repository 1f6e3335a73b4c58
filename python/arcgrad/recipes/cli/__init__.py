"""The program ``arcgrad``; each command is a module of this room."""

from .program import app, main

__all__ = ["app", "main"]
