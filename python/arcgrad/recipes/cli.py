"""The command line: ``arcgrad train``, ``test``, ``experiments`` and ``pieces``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console

    from . import experiment as experiments
    from . import train as training
    from .data import CorpusError, WordPieces
    from .recognizer import load_data
except ImportError as error:
    raise SystemExit(
        f"arcgrad: the command line needs {error.name or error}, but it is not installed; "
        "pip install 'arcgrad[recipes]'"
    ) from error

__all__ = ["app", "main"]

USER_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train and test recognisers whose losses are graphs.",
    epilog="Example: [bold]arcgrad train demo[/bold], then [bold]arcgrad test runs/demo[/bold].",
)

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Device = Annotated[str, typer.Option(help="Where the network is: cpu, cuda, ...")]
Threads = Annotated[int, typer.Option(min=1, help="How many threads torch uses.")]


@app.command(
    "train",
    epilog="Examples: [bold]arcgrad train demo[/bold]  ·  "
    "[bold]arcgrad train table1/ngram2/no_blank --set optim.learning_rate=1e-3 --epochs 5[/bold]"
    "  ·  [bold]arcgrad train demo --resume[/bold]",
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Train a named experiment."""
    chosen = experiments.override(experiments.find(experiment), settings or [])
    if epochs is not None:
        chosen = experiments.override(chosen, [f"optim.epochs={epochs}"])
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


@app.command(
    "test",
    epilog="Examples: [bold]arcgrad test runs/demo[/bold]  ·  "
    "[bold]arcgrad test runs/demo --split validation --show 20 --pictures pictures[/bold]",
)
def run_test(
    run: Run,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
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
    from .data import collate
    from .plots import plot_alignment

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


@app.command("experiments", epilog="Example: [bold]arcgrad experiments[/bold]")
def run_experiments() -> None:
    """List the named experiments and what the paper reports for each."""
    width = max(map(len, experiments.EXPERIMENTS))
    for name, experiment in experiments.EXPERIMENTS.items():
        typer.echo(f"{name:<{width}}  {experiment.description}")


@app.command(
    "pieces",
    epilog="Example: [bold]arcgrad pieces train.txt --size 1000 --out pieces.model[/bold]",
)
def run_pieces(
    texts: Annotated[list[Path], typer.Argument(help="Files with a training text on each line.")],
    size: Annotated[int, typer.Option(min=1, help="The number of pieces.")],
    out: Annotated[Path, typer.Option(help="Where the model is written.")],
) -> None:
    """Learn word pieces with SentencePiece, from the training texts only."""
    lines: list[str] = []
    for path in texts:
        with path.open(encoding="utf-8") as file:
            lines += [line for text in file if (line := text.strip())]
    pieces = WordPieces.train(lines, size)
    pieces.save(out)
    typer.echo(f"{len(pieces.tokens)} pieces of {len(lines)} texts, in {out}")


def main() -> None:
    """Runs the command line; what a user can mend is one line and exit code 2."""
    try:
        app()
    except (ValueError, OSError, CorpusError, training.TrainingError) as error:
        message = " ".join(str(error).split())
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"arcgrad: {message}", markup=False
        )
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
