"""``arcgrad experiments``."""

from __future__ import annotations

import typer

from .application import app


@app.command("experiments", epilog="Example: [bold]arcgrad experiments[/bold]")
def run_experiments() -> None:
    """List the named experiments and what the paper reports for each."""
    from arcgrad.recipes.experiments import EXPERIMENTS

    width = max(map(len, EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        typer.echo(f"{name:<{width}}  {experiment.description}")
