"""``arcgrad reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arcgrad.recipes import paper

from .application import Device, Quiet, Threads, app


@app.command(
    "reproduce",
    epilog="Examples: [bold]arcgrad reproduce table1 --jobs 2[/bold]  ·  "
    "[bold]arcgrad reproduce fig5 --quick[/bold]  ·  "
    "[bold]arcgrad reproduce table1 --seeds 3[/bold]  ·  "
    "[bold]arcgrad reproduce table2 --data iam --data-path IAM --device cuda[/bold]",
)
def run_reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table4, fig5, fig7 or fig8 of the paper; variants; or "
            "settings."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="letters, words, digits, iam, librispeech or wsj; by default letters."),
    ] = None,
    data_path: Annotated[Path | None, typer.Option(help="The folder of the corpus.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for tables, pictures and runs.")] = Path(
        "results"
    ),
    preset: Annotated[
        str | None,
        typer.Option(
            help="paper, published or small: the paper's settings, those of the published recipes, "
            "or networks for processors."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="The number of runs of each cell, with adjacent seeds.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Train only cells with this in their names, such as ngram2/."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting in all cells."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Train very little, as a test.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="The number of cells to train at a time.")] = 1,
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Train all cells of a table or figure, and write it with the paper's results.

    Finished runs are kept and others are resumed, so repeat the command after an interruption.
    """
    changed = [] if data_path is None else [f"data.path={data_path}"]
    written = paper.reproduce(
        table,
        data,
        out,
        preset=preset,  # type: ignore[arg-type]  # reproduce checks it
        seeds=seeds,
        only=only or (),
        settings=[*changed, *(settings or [])],
        quick=quick,
        jobs=jobs,
        device=device,
        threads=threads,
        quiet=quiet,
    )
    if not quiet:
        for path in written:
            typer.echo(f"wrote {path}")
