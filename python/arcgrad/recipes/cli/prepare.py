"""``arcgrad prepare``, with a command for each corpus that users bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from arcgrad.recipes.data import Prepared, iam, librispeech, wsj
from arcgrad.recipes.data.manifests import first_names

from .application import app

corpora = typer.Typer(no_args_is_help=True)
app.add_typer(
    corpora,
    name="prepare",
    help="Check a corpus and write the manifests that training reads.",
    epilog="Examples: [bold]arcgrad prepare iam /data/iam[/bold]  ·  "
    "[bold]arcgrad prepare librispeech /data/LibriSpeech --check[/bold]",
)

Folder = Annotated[Path, typer.Argument(help="The folder of the corpus.")]
Out = Annotated[
    Path | None, typer.Option(help="The folder for manifests; PATH/arcgrad by default.")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Leave out missing or damaged examples.")
]
Check = Annotated[bool, typer.Option("--check", help="Check every file, but write nothing.")]


@corpora.command(
    "iam",
    epilog="Examples: [bold]arcgrad prepare iam /data/iam[/bold]  ·  "
    "[bold]arcgrad prepare iam /data/iam --unit words --check[/bold]",
)
def run_iam(
    path: Folder,
    unit: Annotated[str, typer.Option(help="lines or words.")] = "lines",
    out: Out = None,
    allow_missing: AllowMissing = False,
    check: Check = False,
) -> None:
    """The IAM handwriting database: cut lines or words from its forms.

    PATH has the forms (or lines/), ascii (or xml/), and the split files of the task "Large Writer
    Independent Text Line Recognition".
    """
    _report(
        iam.prepare(
            *(path, out),
            unit=unit,  # type: ignore[arg-type]
            allow_missing=allow_missing,
            check_only=check,
            progress=_progress("forms"),
        ),
        check,
        f"data.corpus=iam data.task={unit}",
    )


@corpora.command(
    "librispeech",
    epilog="Examples: [bold]arcgrad prepare librispeech /data/LibriSpeech[/bold]  ·  "
    "[bold]arcgrad prepare librispeech /data/LibriSpeech --part dev-clean --check[/bold]",
)
def run_librispeech(
    path: Folder,
    part: Annotated[
        list[str] | None,
        typer.Option(help="A part, such as train-clean-100; all that are there by default."),
    ] = None,
    out: Out = None,
    allow_missing: AllowMissing = False,
    check: Check = False,
) -> None:
    """LibriSpeech: list its recordings, which stay where they are.

    PATH has train-clean-100, dev-clean, test-clean and others, or a folder LibriSpeech with them.
    """
    _report(
        librispeech.prepare(
            *(path, out),
            parts=part,
            allow_missing=allow_missing,
            check_only=check,
            progress=_progress("chapters"),
        ),
        check,
        "data.corpus=librispeech",
    )


@corpora.command(
    "wsj",
    epilog="Examples: [bold]arcgrad prepare wsj /data/wsj --convert[/bold]  ·  "
    "[bold]arcgrad prepare wsj /data/wsj --audio /data/wsj-wav[/bold]",
)
def run_wsj(
    path: Folder,
    convert: Annotated[
        bool, typer.Option("--convert", help="Convert compressed recordings with sph2pipe.")
    ] = False,
    audio: Annotated[
        Path | None, typer.Option(help="A folder with recordings that are converted already.")
    ] = None,
    out: Out = None,
    allow_missing: AllowMissing = False,
    check: Check = False,
) -> None:
    """The Wall Street Journal corpora: list recordings, converted where they are compressed.

    PATH has csr_1 (LDC93S6A) and csr_2_comp (LDC94S13A). Their recordings are SPHERE files that are
    compressed with shorten, which no common library reads. Install sph2pipe (openslr.org/3) and
    pass --convert. Or convert each by other means, such as

      sph2pipe -p -f wav csr_1/11-1.1/wsj0/x.wv1 FOLDER/csr_1/11-1.1/wsj0/x.wav

    and pass --audio FOLDER.
    """
    _report(
        wsj.prepare(
            *(path, out),
            convert=convert,
            audio_path=audio,
            allow_missing=allow_missing,
            check_only=check,
            progress=_progress("recordings"),
        ),
        check,
        "data.corpus=wsj",
    )


def _progress(what: str) -> Callable[[Sequence[Any]], Iterable[Any]]:
    """Return a function that shows a progress bar on a terminal."""
    console = Console(stderr=True)

    def tracked(items: Sequence[Any]) -> Iterable[Any]:
        return track(items, what, console=console, transient=True, disable=not console.is_terminal)

    return tracked


def _report(prepared: Prepared, check: bool, settings: str) -> None:
    """Print the contents of a prepared corpus, and the command that trains on it."""
    width = max(map(len, prepared.counts))
    for name, count in prepared.counts.items():
        hours = f"  {prepared.hours[name]:8.2f} hours" if name in prepared.hours else ""
        typer.echo(f"{name:<{width}}  {count:7} examples{hours}")
    for kind, names in prepared.left_out.items():
        typer.echo(f"left out: {len(names)} {kind} ({first_names(names)})")
    if check:
        typer.echo("nothing was written")
        return
    typer.echo(f"manifests in {prepared.folder}")
    options = " ".join(f"--set {setting}" for setting in settings.split())
    typer.echo(f"train with: arcgrad train EXPERIMENT {options} --set data.path={prepared.folder}")
