"""What ``arcgrad align`` and ``arcgrad decode`` do with a whole corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from arcgrad.recipes.inference import CorpusTask, read_items, run_corpus
from arcgrad.recipes.inference.alignment import FORMATS

from .application import Failures

CorpusPath = Annotated[
    Path | None,
    typer.Option(
        help="A folder, or a manifest of JSON lines or of lines with a file, a tab, a text."
    ),
]
FrameShift = Annotated[
    float | None, typer.Option(help="Of arrays in .npy files: the seconds between two frames.")
]
Engine = Annotated[str, typer.Option(help="With --corpus: local, or ray for a cluster.")]
Address = Annotated[
    str | None, typer.Option(help="The address of the cluster; 'auto' for that of this machine.")
]
ShardSize = Annotated[
    int, typer.Option(min=1, help="The number of items of a task on the cluster.")
]


def corpus_task(
    op: str,
    model: Path,
    output_format: str,
    options: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> CorpusTask:
    """Return the task of a command, with all of its paths absolute."""
    if output_format != "textgrid" and output_format not in FORMATS:
        raise ValueError(
            f"{op}: the format must be one of {', '.join(FORMATS)}, textgrid, but it is "
            f"{output_format!r}"
        )
    kept = {
        key: str(Path(value).absolute()) if key in ("lm", "lexicon") else value
        for key, value in arguments.items()
    }
    return CorpusTask(
        op, str(model.absolute()), output_format, tuple(options.items()), tuple(kept.items())
    )


def run_on_corpus(
    task: CorpusTask,
    corpus: Path,
    out: Path | None,
    limit: int | None,
    engine: tuple[str, str | None, int],
) -> None:
    """Run a task on a corpus with a progress bar; exit with an error if items failed."""
    if out is None:
        raise ValueError(
            f"{task.op}: --corpus needs a folder for its outputs, but --out is not set"
        )
    items = read_items(task.op, corpus, task.op == "align")[:limit]
    name, address, shard_size = engine
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task(task.op, total=len(items))
        failures = run_corpus(
            task,
            items,
            out,
            engine=name,
            address=address,
            shard_size=shard_size,
            show=lambda done, _: progress.update(bar, completed=done),
        )
    reported = Failures()
    for failure in failures:
        reported.add(ValueError(f"{failure.name}: {failure.error}"))
    typer.echo(f"{len(items) - len(failures)} of {len(items)} written to {out}")
    reported.finish(len(items))
