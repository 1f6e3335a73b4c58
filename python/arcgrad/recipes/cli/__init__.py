"""The program ``arcgrad``; each command is a module of this room.

Importing this needs the extra ``[recipes]``; without it, the program ends with one line.
"""

from .program import app, main

__all__ = ["app", "main"]
