"""``arcgrad sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .application import Device, Quiet, Threads, app, experiment_names


@app.command(
    "sweep",
    epilog="Examples: [bold]arcgrad sweep demo --set optim.learning_rate=0.001,0.01[/bold]  ·  "
    "[bold]arcgrad sweep demo --set optim.learning_rate=1e-4..1e-1 --trials 12[/bold]",
)
def run_sweep(
    experiment: Annotated[
        str,
        typer.Argument(help="A name from 'arcgrad experiments'.", autocompletion=experiment_names),
    ],
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUES",
            help="A setting: one value, several by commas, or a range LOW..HIGH to search.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder; sweeps/EXPERIMENT by default.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="The number of trials, if there is a range.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Train an experiment with several values of settings, and write one report.

    Finished trials are kept and others are resumed, so repeat the command after an interruption.
    """
    from arcgrad.recipes.experiments import find
    from arcgrad.recipes.paper.sweep import sweep

    folder = out if out is not None else Path("sweeps") / experiment
    written = sweep(
        find(experiment),
        settings,
        folder,
        trials=trials,
        device=device,
        threads=threads,
        quiet=quiet,
    )
    if not quiet:
        for path in written:
            typer.echo(f"wrote {path}")
