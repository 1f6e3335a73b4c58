"""The application that commands register with, and the options that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train and test recognisers whose losses are graphs.",
    epilog="Example: [bold]arcgrad train demo[/bold], then [bold]arcgrad test runs/demo[/bold].",
)

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Split = Annotated[str, typer.Option(help="train, validation or test.")]
Checkpoint = Annotated[str, typer.Option(help="best or last.")]
Device = Annotated[str, typer.Option(help="Where the network is: cpu, cuda, ...")]
Threads = Annotated[int, typer.Option(min=1, help="How many threads torch uses.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]
