"""``arcgrad test``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arcgrad.recipes import train as training
from arcgrad.recipes.data import collate
from arcgrad.recipes.plots import plot_alignment
from arcgrad.recipes.recognizer import load_data

from ._app import Checkpoint, Device, Run, Split, Threads, app


@app.command(
    "test",
    epilog="Examples: [bold]arcgrad test runs/demo[/bold]  ·  "
    "[bold]arcgrad test runs/demo --split validation --show 20 --pictures pictures[/bold]",
)
def run_test(
    run: Run,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    show: Annotated[int, typer.Option(min=0, help="How many examples to print.")] = 5,
    pictures: Annotated[
        Path | None, typer.Option(help="A folder for the alignments of these examples.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """Print the error rates of a run, and some of what it recognised."""
    result = training.evaluate_run(
        run, split, checkpoint=checkpoint, device=device, threads=threads
    )
    for scored in result.examples[:show]:
        wrong = scored.chars.count
        typer.echo(f"reference   {scored.reference}")
        typer.echo(f"recognised  {scored.hypothesis}" + (f"  ({wrong} wrong)" if wrong else ""))
    if pictures is not None:
        for path in _draw(run, split, checkpoint, show, pictures):
            typer.echo(f"wrote {path}")
    typer.echo(
        f"{split}: CER {result.cer:.2f}% WER {result.wer:.2f}% of {len(result.examples)} examples"
    )


def _draw(run: Path, split: str, checkpoint: str, count: int, folder: Path) -> list[Path]:
    """Pictures of the first examples, with the best alignment of what was recognised."""
    experiment, recognizer = training.load_run(run, checkpoint)
    dataset = getattr(load_data(experiment), split)
    tokens = ["blank"] * recognizer.first_label + list(recognizer.tokenizer.tokens)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index in range(min(count, len(dataset))):
        batch = collate([dataset[index]])
        emissions, lengths = recognizer(batch)
        found = recognizer.transcribe(emissions, lengths)[0]
        spans = recognizer.align(emissions[0], int(lengths[0]), found)
        paths.append(folder / f"{split}-{index}.png")
        plot_alignment(
            emissions[0, : lengths[0]],
            spans,
            paths[-1],
            tokens=tokens,
            image=batch.inputs[0],
            title=f"{batch.texts[0]}  →  {found}",
        )
    return paths
