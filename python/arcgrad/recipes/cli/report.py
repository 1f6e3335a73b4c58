"""``arcgrad report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arcgrad.recipes.report import write_report

from .application import Checkpoint, Device, Split, Threads, app


@app.command(
    "report",
    epilog="Examples: [bold]arcgrad report runs/demo[/bold]  ·  "
    "[bold]arcgrad report runs/table1/letters/*/* --out table1.html --split validation[/bold]",
)
def run_report(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page; by default report.html, in the folder of a single run."),
    ] = None,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    examples: Annotated[
        int, typer.Option(min=0, help="The number of worst examples to show, and of best examples.")
    ] = 5,
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """Write a page about runs: error rates, curves, examples and settings."""
    if out is None:
        out = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    page = write_report(
        runs,
        out,
        split=split,
        checkpoint=checkpoint,
        examples=examples,
        device=device,
        threads=threads,
    )
    typer.echo(f"wrote {page}")
