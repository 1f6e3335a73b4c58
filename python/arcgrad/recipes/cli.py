"""The program ``arcgrad``; its commands are in :mod:`arcgrad.recipes.commands`."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import NoReturn

try:
    from rich.console import Console
    from torch.distributed import is_torchelastic_launched

    from .commands import app
    from .commands._app import USER_ERROR
    from .commands.train import INTERRUPTED
    from .data import CorpusError
    from .processes import rank
    from .train import TrainingError
except ImportError as error:
    raise SystemExit(
        f"arcgrad: the command line needs {error.name or error}, but it is not installed; "
        "pip install 'arcgrad[recipes]'"
    ) from error

__all__ = ["app", "main"]

DEFECT = 1

# Errors that arcgrad raises name first what failed, and perhaps a part of it; those of others do
# not, and may be defects.
NAMED = re.compile(r"[A-Za-z_][\w.]*( \(.*?\))?: ")


def main() -> None:
    """Runs the command line; what a user can mend is one line and exit code 2.

    Other errors are shown whole, and so are all if ``ARCGRAD_TRACEBACK`` is set.
    """
    try:
        app(prog_name="arcgrad")
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ARCGRAD_TRACEBACK") or not _can_be_mended(error):
            if not is_torchelastic_launched():
                raise
            traceback.print_exc()
            _end(DEFECT)
        message = " ".join(str(error).split())
        # Each process of torchrun says what ended it: the first to end ends the others.
        process = f" (process {rank()})" if is_torchelastic_launched() else ""
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"arcgrad{process}: {message}", markup=False
        )
        _end(USER_ERROR)


def _can_be_mended(error: Exception) -> bool:
    """Whether an error is about what a user gave."""
    if isinstance(error, OSError | CorpusError | TrainingError):
        return True
    return isinstance(error, ValueError) and NAMED.match(str(error)) is not None


def _end(code: int) -> NoReturn:
    """Ends the program; one of several processes at once, so that it cannot wait for the others."""
    if is_torchelastic_launched():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
