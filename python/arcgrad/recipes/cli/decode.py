"""``arcgrad decode``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import arcgrad as ag
from arcgrad.recipes.data import Input, input_features, read_input
from arcgrad.recipes.inference import (
    BEAM,
    Decoder,
    Transcript,
    align,
    load_run_on,
    log_probs,
    read_lexicon,
    torch_threads,
)
from arcgrad.recipes.inference.alignment import to_dict
from arcgrad.recipes.recognizer import Recognizer

from .application import Checkpoint, Device, Failures, Run, Threads, app
from .corpus import (
    Address,
    CorpusPath,
    Engine,
    FrameShift,
    ShardSize,
    corpus_task,
    run_on_corpus,
)


@app.command(
    "decode",
    epilog="Examples: [bold]arcgrad decode runs/demo line.png[/bold]  ·  "
    "[bold]arcgrad decode runs/demo *.png --nbest 5 --json[/bold]  ·  "
    "[bold]arcgrad decode runs/demo line.png --lexicon words.txt --lm words.arpa[/bold]",
)
def run_decode(
    run: Run,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Images or recordings, like the data of the run.")
    ] = None,
    beam: Annotated[
        float | None,
        typer.Option(
            help="Beam search: prune nodes whose score is lower than the best of their frame by "
            f"more. {BEAM:g} with --nbest, --lexicon or --lm; otherwise the best path is printed."
        ),
    ] = None,
    max_active: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of nodes per frame.")
    ] = None,
    nbest: Annotated[int, typer.Option(min=1, help="The number of texts to print.")] = 1,
    lexicon: Annotated[
        Path | None,
        typer.Option(help="A file with one word per line, optionally followed by its tokens."),
    ] = None,
    lm: Annotated[
        Path | None,
        typer.Option(help="An ARPA file: of words with --lexicon, else of the run's tokens."),
    ] = None,
    lm_weight: Annotated[float, typer.Option(help="The factor of the scores of --lm.")] = 1.0,
    word_score: Annotated[float, typer.Option(help="The score of each word of --lexicon.")] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines with scores and positions.")
    ] = False,
    corpus: CorpusPath = None,
    output_format: Annotated[
        str, typer.Option("--format", help="With --corpus: json, tsv, ctm, srt, vtt or textgrid.")
    ] = "json",
    out: Annotated[Path | None, typer.Option(help="With --corpus: the folder to write.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of items.")] = None,
    checkpoint: Checkpoint = "best",
    device: Device = "cpu",
    threads: Threads = 1,
    frame_shift: FrameShift = None,
    engine: Engine = "local",
    address: Address = None,
    shard_size: ShardSize = 32,
) -> None:
    """Recognise images or recordings: print the file, a tab and the text.

    With --corpus, write one file per item of a folder or manifest; RUN may also be file.py:name of
    an adapter, or a file of labels for arrays in .npy files.
    """
    if corpus is not None:
        arguments: dict[str, Any] = {"beam": 25.0 if beam is None else beam}
        arguments |= {"max_active": max_active} if max_active else {}
        if lm is not None:
            arguments |= {"lm": str(lm), "alpha": lm_weight, "beta": word_score}
        if lexicon is not None:
            arguments["lexicon"] = str(lexicon)
        options = {"checkpoint": checkpoint, "device": device, "frame_shift": frame_shift}
        task = corpus_task("decode", run, output_format, options, arguments)
        run_on_corpus(task, corpus, out, limit, (engine, address, shard_size))
        return
    if not files:
        raise ValueError("decode: there must be a file or --corpus, but there is neither")
    experiment, recognizer = load_run_on("decode", run, checkpoint, device)
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
    with torch_threads(threads):
        for file in files:
            try:
                source = read_input(features, file)
                emissions = log_probs(recognizer, source.values)
                found = decoder(emissions, nbest)
                if not found:
                    raise ValueError(
                        f"decode: a path must fit into the frames and the beam, but {str(file)!r} "
                        "has no such path; raise --beam"
                    )
            except (ValueError, OSError) as error:
                failures.add(error, file)
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
    """Return the JSON content for a file."""
    best = found[0]
    content: dict[str, Any] = {"text": best.text, "score": round(best.score, 4)}
    content["nbest"] = [{"text": each.text, "score": round(each.score, 4)} for each in found]
    try:
        aligned = to_dict(align(recognizer, "", source, best.text, emissions=emissions))
    except ValueError:  # a word of the lexicon that the tokenizer cannot spell
        return content
    keys = ("unit", "extent", "num_frames", "segments")
    return content | {key: aligned[key] for key in keys}
