"""The entry point of ``arcgrad``: runs a command and reports errors."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import NoReturn

from .application import USER_ERROR, app, is_distributed, rank

__all__ = ["app", "main"]

DEFECT, INTERRUPTED = 1, 130

# Errors of arcgrad begin with the name of what failed; other errors do not, and may be defects.
NAMED = re.compile(r"[A-Za-z_][\w.]*( \(.*?\))?: ")


def main() -> None:
    """Run the command line. User errors print one line and exit with code 2.

    Other errors show their traceback, and so do all errors if ``ARCGRAD_TRACEBACK`` is set.
    """
    try:
        app(prog_name="arcgrad")
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ARCGRAD_TRACEBACK") or not _is_user_error(error):
            if not is_distributed():
                raise
            traceback.print_exc()
            _end(DEFECT)
        message = " ".join(str(error).split())
        # Under torchrun the first process that fails ends the others, so each names itself.
        process = f" (process {rank()})" if is_distributed() else ""
        from rich.console import Console

        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"arcgrad{process}: {message}", markup=False
        )
        _end(USER_ERROR)


def _is_user_error(error: Exception) -> bool:
    """Return whether an error is about the user's input."""
    if isinstance(error, OSError) or getattr(error, "is_user_error", False):
        return True
    return isinstance(error, ValueError) and NAMED.match(str(error)) is not None


def _end(code: int) -> NoReturn:
    """Exit. Under torchrun exit at once, since cleaning up would wait for the other processes."""
    if is_distributed():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
