"""``arcgrad pieces``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arcgrad import _files
from arcgrad.recipes.data import WordPieces

from .application import app


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
        content = _files.read_text("pieces", path)
        lines += [line for text in content.split("\n") if (line := text.strip())]
    pieces = WordPieces.train(lines, size)
    pieces.save(out)
    typer.echo(f"{len(pieces.tokens)} pieces of {len(lines)} texts, in {out}")
