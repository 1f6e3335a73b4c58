"""The program ``arcgrad``; its commands are in :mod:`arcgrad.recipes.commands`."""

from __future__ import annotations

import sys

try:
    from rich.console import Console

    from .commands import app
    from .commands._app import USER_ERROR
    from .commands.train import INTERRUPTED
    from .data import CorpusError
    from .train import TrainingError
except ImportError as error:
    raise SystemExit(
        f"arcgrad: the command line needs {error.name or error}, but it is not installed; "
        "pip install 'arcgrad[recipes]'"
    ) from error

__all__ = ["app", "main"]


def main() -> None:
    """Runs the command line; what a user can mend is one line and exit code 2."""
    try:
        app(prog_name="arcgrad")
    except (ValueError, OSError, CorpusError, TrainingError) as error:
        message = " ".join(str(error).split())
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"arcgrad: {message}", markup=False
        )
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
