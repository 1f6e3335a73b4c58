"""``arcgrad align``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple

import typer
from torch import Tensor

from arcgrad import _files
from arcgrad.recipes.data import Input, dataset_input, input_features, load_split, read_input
from arcgrad.recipes.experiments import Experiment
from arcgrad.recipes.inference import (
    align,
    load_run_on,
    log_probs,
    to_textgrid,
    token_names,
    torch_threads,
)
from arcgrad.recipes.inference.alignment import FORMATS, check_unit
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.report import plot_alignment

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

TEXTGRID = ".TextGrid"


class Item(NamedTuple):
    """An input to align: its name, its text, and a function that reads it."""

    name: str
    text: str
    read: Callable[[], Input]

    @property
    def stem(self) -> str:
        """The name of its output files, without suffix."""
        return PurePath(self.name).stem


@app.command(
    "align",
    epilog='Examples: [bold]arcgrad align runs/demo line.png --text "the end of it"[/bold]  ·  '
    "[bold]arcgrad align runs/digits --manifest said.tsv --unit word --format ctm[/bold]  ·  "
    "[bold]arcgrad align runs/demo --split test --limit 3 --pictures there[/bold]",
)
def run_align(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help="An image or a recording; with --text.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text of the file.")] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="Lines with a file, a tab and its text; files are relative to the manifest."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Align data of the run instead: train, validation or test.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of inputs.")] = None,
    corpus: CorpusPath = None,
    skip_penalty: Annotated[
        float | None,
        typer.Option(help="With --corpus: words may be missing, and others said, at this cost."),
    ] = None,
    free_ends: Annotated[
        bool, typer.Option(help="With --corpus: other words may come first and last.")
    ] = False,
    unit: Annotated[str, typer.Option(help="The unit of the alignment: token or word.")] = "token",
    output_format: Annotated[
        str,
        typer.Option(
            "--format", help="tsv, json (lines), ctm (NIST), srt, vtt or textgrid (Praat)."
        ),
    ] = "tsv",
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write instead of printing; a folder for several TextGrids."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="A folder for pictures of the alignments.")
    ] = None,
    checkpoint: Checkpoint = "best",
    device: Device = "cpu",
    threads: Threads = 1,
    frame_shift: FrameShift = None,
    engine: Engine = "local",
    address: Address = None,
    shard_size: ShardSize = 32,
) -> None:
    """Align known texts: print positions in seconds or pixels, and in frames.

    With --corpus, write one file per item of a folder or manifest; RUN may also be file.py:name of
    an adapter, or a file of labels for arrays in .npy files.
    """
    if corpus is not None:
        arguments: dict[str, Any] = {"skip_penalty": skip_penalty, "free_ends": free_ends}
        options = {"checkpoint": checkpoint, "device": device, "frame_shift": frame_shift}
        task = corpus_task("align", run, output_format, options, arguments)
        run_on_corpus(task, corpus, out, limit, (engine, address, shard_size))
        return
    sources = {"a file": file, "--text": text, "--manifest": manifest, "--split": split}
    given = [name for name, value in sources.items() if value is not None]
    if given not in (["a file", "--text"], ["--manifest"], ["--split"]):
        raise ValueError(
            "align: there must be a file with --text, or --manifest, or --split, but there is "
            f"{' and '.join(given) or 'nothing'}"
        )
    check_unit(unit)
    is_textgrid = output_format == "textgrid"
    if not is_textgrid and output_format not in FORMATS:
        raise ValueError(
            f"align: the format must be one of {', '.join(FORMATS)}, textgrid, but it is "
            f"{output_format!r}"
        )
    experiment, recognizer = load_run_on("align", run, checkpoint, device)
    items = _items(experiment, recognizer, file, text, manifest, split)[:limit]
    is_folder = out is not None and out.suffix != TEXTGRID
    if is_textgrid and len(items) > 1 and not is_folder:
        raise ValueError(
            f"align: several TextGrids must have a folder, but for {len(items)} of them --out is "
            f"{'not set' if out is None else repr(str(out))}"
        )
    if is_textgrid or pictures is not None:
        _check_names(items)

    alignments, failures = [], Failures()
    with torch_threads(threads):
        for item in items:
            try:
                source = item.read()
                emissions = log_probs(recognizer, source.values)
                alignments.append(
                    align(
                        *(recognizer, item.name, source, item.text),
                        unit=unit,
                        emissions=emissions,
                    )
                )
            except (ValueError, OSError) as error:
                failures.add(error)
                continue
            if pictures is not None:
                _draw(recognizer, source, emissions, item, pictures)
    if is_textgrid:
        for found in alignments:
            _write(_textgrid_path(out, found.name), to_textgrid(found, f"{unit}s"))
    else:
        _write(out, FORMATS[output_format](alignments))
    failures.finish(len(items))


def _items(
    experiment: Experiment,
    recognizer: Recognizer,
    file: Path | None,
    text: str | None,
    manifest: Path | None,
    split: str | None,
) -> list[Item]:
    """Return the inputs to align."""
    if split is not None:
        dataset = load_split(experiment, split)
        return [
            Item(name, said, lambda index=index: dataset_input(dataset, index))  # type: ignore[misc]
            for index, (name, said) in enumerate(zip(dataset.ids, dataset.texts, strict=True))
        ]
    features = input_features(experiment, recognizer.height)
    rows = [(str(file), text or "")] if manifest is None else _read_manifest(manifest)
    folder = Path() if manifest is None else manifest.parent
    return [
        Item(name, said, lambda path=folder / name: read_input(features, path))  # type: ignore[misc]
        for name, said in rows
    ]


def _read_manifest(path: Path) -> list[tuple[str, str]]:
    rows = []
    for number, line in enumerate(_files.read_text("align", path).split("\n"), 1):
        if not line.strip():
            continue
        name, tab, text = line.partition("\t")
        if not tab or not name.strip():
            raise ValueError(
                "align: a line of a manifest must be a file, a tab and a text, but line "
                f"{number} of {str(path)!r} is {_files.shown(line)}"
            )
        rows.append((name.strip(), text.strip()))
    if not rows:
        raise ValueError(f"align: a manifest must have a line, but {str(path)!r} has none")
    return rows


def _check_names(items: list[Item]) -> None:
    """Raise if the output files of two items would have the same name."""
    name, count = max(Counter(item.stem for item in items).items(), key=lambda entry: entry[1])
    if count > 1:
        raise ValueError(
            "align: inputs must have different names, which name TextGrids and pictures, but "
            f"{count} are called {name!r}"
        )


def _textgrid_path(out: Path | None, name: str) -> Path | None:
    if out is None or out.suffix == TEXTGRID:
        return out
    out.mkdir(parents=True, exist_ok=True)
    return out / f"{PurePath(name).stem}{TEXTGRID}"


def _write(out: Path | None, text: str) -> None:
    if out is None:
        typer.echo(text)
    else:
        _files.write(out, f"{text}\n".encode())


def _draw(
    recognizer: Recognizer, source: Input, emissions: Tensor, item: Item, folder: Path
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure: Any = plot_alignment(
        emissions,
        recognizer.align(emissions, len(emissions), item.text),
        tokens=token_names(recognizer),
        image=source.values,
        title=item.text,
    )
    figure.savefig(folder / f"{item.stem}.png")
