"""The application that commands register with, and their common options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# The exit code of user errors.
USER_ERROR = 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train and test recognisers whose losses are graphs.",
    epilog="Example: [bold]arcgrad train demo[/bold], then [bold]arcgrad test runs/demo[/bold]. "
    "With ARCGRAD_TRACEBACK=1 errors show their traceback.",
)

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Split = Annotated[str, typer.Option(help="train, validation or test.")]
Checkpoint = Annotated[str, typer.Option(help="best or last.")]
Device = Annotated[str, typer.Option(help="The device of the network: cpu, cuda, ...")]
Threads = Annotated[int, typer.Option(min=1, help="The number of threads of torch.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]


class Failures:
    """Files that failed: each is reported at once, and all are counted at the end."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, error: Exception) -> None:
        """Report the error of a file."""
        self._count += 1
        typer.echo(f"arcgrad: {' '.join(str(error).split())}", err=True)

    def finish(self, total: int) -> None:
        """End the command with an error if there are failures."""
        if self._count:
            typer.echo(f"arcgrad: {self._count} of {total} failed", err=True)
            raise typer.Exit(USER_ERROR)
