"""``arcgrad train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arcgrad.recipes import train as training
from arcgrad.recipes.catalog import find
from arcgrad.recipes.experiment import override

from ._app import Device, Quiet, Threads, app

INTERRUPTED = 130


@app.command(
    "train",
    epilog="Examples: [bold]arcgrad train demo[/bold]  ·  "
    "[bold]arcgrad train table1/letters/ngram2/no_blank --set seed=1 --epochs 5[/bold]  ·  "
    "[bold]arcgrad train demo --resume[/bold]",
)
def run_train(
    experiment: Annotated[str, typer.Argument(help="A name of 'arcgrad experiments'.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another setting.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Sets optim.epochs.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/EXPERIMENT by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run there.")] = False,
    max_seconds: Annotated[
        float | None, typer.Option(help="Stop training after this time.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Train a named experiment."""
    chosen = override(find(experiment), settings or [])
    if epochs is not None:
        chosen = override(chosen, [f"optim.epochs={epochs}"])
    folder = out if out is not None else Path("runs") / experiment
    result = training.train(
        chosen,
        folder,
        resume=resume,
        max_seconds=max_seconds,
        device=device,
        threads=threads,
        quiet=quiet,
    )
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not quiet:
        typer.echo(f"best validation CER {result.best_cer:.2f}%, in {folder}")
