"""``arcgrad train``."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .application import Device, Quiet, Threads, app, experiment_names, rank, seconds

if TYPE_CHECKING:
    from arcgrad.recipes.experiments import Experiment

# The exit code of a program that a signal ends is this and the number of the signal.
SIGNALLED = 128


@app.command(
    "train",
    epilog="Examples: [bold]arcgrad train demo[/bold]  ·  "
    "[bold]arcgrad train table1/letters/ngram2/no_blank --set seed=1 --epochs 5[/bold]  ·  "
    "[bold]arcgrad train demo --resume[/bold]  ·  "
    "[bold]torchrun --standalone --nproc-per-node 2 -m arcgrad.recipes.cli train demo[/bold]",
)
def run_train(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="A name from 'arcgrad experiments'; by default the one in --settings.",
            autocompletion=experiment_names,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML or YAML file of settings.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, also of --settings."),
    ] = None,
    data_path: Annotated[str | None, typer.Option(help="Sets data.path.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Sets optim.epochs.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Sets seed.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/EXPERIMENT by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run there.")] = False,
    max_seconds: Annotated[
        float | None, typer.Option(help="The time limit of the training.")
    ] = None,
    save_every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Save within an epoch too: every 10m, 90s, 1h, ..."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="The number of processes that load data; chosen by default."),
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Train a named experiment; with torchrun, in several processes."""
    from arcgrad.recipes.experiments import override

    interval = seconds("--save-every", save_every)
    name, chosen = _from_file(experiment, file)
    chosen = override(chosen, settings or [])
    options = {"data.path": data_path, "optim.epochs": epochs, "seed": seed}
    chosen = override(chosen, {key: value for key, value in options.items() if value is not None})
    folder = out if out is not None else Path("runs") / name
    if not quiet and rank() == 0:
        # Before torch is imported, which takes seconds.
        print(f"training {name} in {folder}", flush=True)
    from arcgrad.recipes import training

    result = training.train(
        chosen,
        folder,
        resume=resume,
        max_seconds=max_seconds,
        device=device,
        threads=threads,
        quiet=quiet,
        command=shlex.join(["arcgrad", *sys.argv[1:]]),
        save_every=interval,
        workers=workers,
    )
    if result.interrupted:
        raise typer.Exit(SIGNALLED + (result.signal or signal.SIGINT))
    if not quiet and rank() == 0:
        typer.echo(f"best validation CER {result.best_cer:.2f}%, in {folder}")


def _from_file(name: str | None, file: Path | None) -> tuple[str, Experiment]:
    """Return the name of an experiment, and the experiment with the settings of a file."""
    from arcgrad.recipes.experiments import find, load_settings, override

    found = {} if file is None else load_settings(file)
    named = found.pop("experiment", None)
    name = named if name is None else name
    if not isinstance(name, str):
        raise ValueError(
            "train: an experiment must be named, as an argument or by 'experiment' in the file of "
            f"settings, but it is {name!r}; 'arcgrad experiments' lists them"
        )
    return name, override(find(name), found, source=file)
