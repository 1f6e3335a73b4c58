"""``arcgrad test``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from arcgrad.recipes.data import load_split
from arcgrad.recipes.inference import evaluate_recognizer, load_run_on, predict
from arcgrad.recipes.report import blocks, draw_prediction

from .application import Checkpoint, Device, Run, Split, Threads, app


@app.command(
    "test",
    epilog="Examples: [bold]arcgrad test runs/demo --images[/bold]  ·  "
    "[bold]arcgrad test runs/demo --split validation --show 20 --pictures pictures[/bold]",
)
def run_test(
    run: Run,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    show: Annotated[int, typer.Option(min=0, help="The number of examples to print.")] = 5,
    images: Annotated[
        bool, typer.Option("--images", help="Print the images of these examples as well.")
    ] = False,
    pictures: Annotated[
        Path | None, typer.Option(help="A folder for the alignments of these examples.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """Print the error rates of a run, and some recognised texts."""
    experiment, recognizer = load_run_on("test", run, checkpoint, device)
    dataset = load_split(experiment, split)
    result = evaluate_recognizer(
        recognizer, dataset, batch_size=experiment.optim.batch_size, threads=threads
    )
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    width = shutil.get_terminal_size().columns
    written = []
    for index, scored in enumerate(result.examples[:show]):
        if images or pictures is not None:
            prediction = predict(recognizer, dataset[index])
            if images:
                typer.echo(blocks(prediction.image, width) + "\n")
            if pictures is not None:
                written.append(pictures / f"{split}-{index}.png")
                title = f"{prediction.reference}  →  {prediction.hypothesis}"
                draw_prediction(prediction, title).savefig(written[-1])
        wrong = scored.chars.count
        typer.echo(f"reference   {scored.reference}")
        typer.echo(f"recognised  {scored.hypothesis}" + (f"  ({wrong} wrong)" if wrong else ""))
        if images:
            typer.echo()
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(
        f"{split}: CER {result.cer:.2f}% WER {result.wer:.2f}% of {len(result.examples)} examples"
    )
