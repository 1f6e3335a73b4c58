"""The application that commands register with, and the options that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# The exit code for what a user can mend.
USER_ERROR = 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train and test recognisers whose losses are graphs.",
    epilog="Example: [bold]arcgrad train demo[/bold], then [bold]arcgrad test runs/demo[/bold]. "
    "With ARCGRAD_TRACEBACK=1 errors are shown whole.",
)

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Split = Annotated[str, typer.Option(help="train, validation or test.")]
Checkpoint = Annotated[str, typer.Option(help="best or last.")]
Device = Annotated[str, typer.Option(help="Where the network is: cpu, cuda, ...")]
Threads = Annotated[int, typer.Option(min=1, help="How many threads torch uses.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]


class Failures:
    """Files that could not be used: each is named at once, and counted at the end."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, error: Exception) -> None:
        """Says what is wrong with a file."""
        self._count += 1
        typer.echo(f"arcgrad: {' '.join(str(error).split())}", err=True)

    def finish(self, total: int) -> None:
        """Ends the command with an error if there were any."""
        if self._count:
            typer.echo(f"arcgrad: {self._count} of {total} failed", err=True)
            raise typer.Exit(USER_ERROR)
