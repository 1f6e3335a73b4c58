"""``arcgrad decode``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import arcgrad as ag
from arcgrad.recipes import train as training
from arcgrad.recipes.alignment import align
from arcgrad.recipes.decoding import BEAM, Decoder, Transcript, log_probs, read_lexicon
from arcgrad.recipes.inputs import Input, input_features, read_input
from arcgrad.recipes.recognizer import Recognizer

from ._app import Checkpoint, Device, Failures, Run, Threads, app


@app.command(
    "decode",
    epilog="Examples: [bold]arcgrad decode runs/demo line.png[/bold]  ·  "
    "[bold]arcgrad decode runs/demo *.png --nbest 5 --json[/bold]  ·  "
    "[bold]arcgrad decode runs/demo line.png --lexicon words.txt --lm words.arpa[/bold]",
)
def run_decode(
    run: Run,
    files: Annotated[
        list[Path], typer.Argument(help="Images of lines or words, or recordings, as the run has.")
    ],
    beam: Annotated[
        float | None,
        typer.Option(
            help="Search, and drop nodes so much worse than the best of their frame. "
            f"{BEAM:g} with --nbest, --lexicon or --lm; without all of these: the best path."
        ),
    ] = None,
    max_active: Annotated[
        int | None, typer.Option(min=1, help="The most nodes that a search keeps at a frame.")
    ] = None,
    nbest: Annotated[int, typer.Option(min=1, help="How many texts to print, with scores.")] = 1,
    lexicon: Annotated[
        Path | None,
        typer.Option(help="Words, one on each line, and perhaps the tokens that spell them."),
    ] = None,
    lm: Annotated[
        Path | None,
        typer.Option(help="An ARPA file: of words with --lexicon, else of the run's tokens."),
    ] = None,
    lm_weight: Annotated[float, typer.Option(help="What scores of --lm are multiplied by.")] = 1.0,
    word_score: Annotated[float, typer.Option(help="Added for each word of --lexicon.")] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines with scores and positions.")
    ] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """Print what images or recordings say: the file, a tab and the text."""
    experiment, recognizer = training.load_run(run, checkpoint)
    recognizer.to(device)
    decoder = Decoder(
        recognizer,
        beam=BEAM if beam is None and nbest > 1 else beam,
        max_active=max_active,
        lexicon=None if lexicon is None else read_lexicon(lexicon, recognizer.tokenizer),
        model=None if lm is None else ag.ngram.load_arpa(lm),
        model_weight=lm_weight,
        word_score=word_score,
    )
    features = input_features(experiment, recognizer.height)
    failures = Failures()
    with training.torch_threads(threads):
        for file in files:
            try:
                source = read_input(features, file)
                emissions = log_probs(recognizer, source.values)
                found = decoder(emissions, nbest)
                if not found:
                    raise ValueError(
                        f"decode: there must be a path, but none for {str(file)!r} fits into its "
                        "frames and within --beam"
                    )
            except (ValueError, OSError) as error:
                failures.add(error)
                continue
            if as_json:
                content = {"file": str(file), **_content(recognizer, source, emissions, found)}
                typer.echo(json.dumps(content, ensure_ascii=False))
            elif nbest == 1:
                typer.echo(f"{file}\t{found[0].text}")
            else:
                for each in found:
                    typer.echo(f"{file}\t{each.text}\t{each.score:.4f}")
    failures.finish(len(files))


def _content(
    recognizer: Recognizer, source: Input, emissions: Any, found: list[Transcript]
) -> dict[str, Any]:
    """What JSON has of a file."""
    best = found[0]
    content: dict[str, Any] = {"text": best.text, "score": round(best.score, 4)}
    content["nbest"] = [{"text": each.text, "score": round(each.score, 4)} for each in found]
    try:
        aligned = align(recognizer, "", source, best.text, emissions=emissions)
    except ValueError:  # a lexicon may have words that only its own spellings spell
        return content
    content |= {"unit": aligned.unit, "extent": aligned.extent, "num_frames": aligned.num_frames}
    content["segments"] = [
        {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in asdict(part).items()
        }
        for part in aligned.segments
    ]
    return content
