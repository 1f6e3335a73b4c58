"""The application that commands register with, and their common options.

A command is a module of this room, which is imported only to run it or to show its help: most of
them import torch, which takes seconds.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

# The exit code of user errors.
USER_ERROR = 2

# The first line of the help of each command.
COMMANDS = {
    "align": "Align known texts: print positions in seconds or pixels, and in frames.",
    "decode": "Recognise images or recordings: print the file, a tab and the text.",
    "experiments": "List the named experiments and what the paper reports for each.",
    "graph": "Convert and draw graphs, and apply operations to files of graphs.",
    "pieces": "Learn word pieces with SentencePiece, from the training texts only.",
    "prepare": "Check a corpus and write the manifests that training reads.",
    "report": "Write a page about runs: error rates, curves, examples and settings.",
    "reproduce": "Train all cells of a table or figure, and write it with the paper's results.",
    "sweep": "Train an experiment with several values of settings, and write one report.",
    "test": "Print the error rates of a run, and some recognised texts.",
    "train": "Train a named experiment; with torchrun, in several processes.",
}


class Commands(TyperGroup):
    """The group of all commands, whose modules are imported on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command, for a list of commands without its options."""
        if name not in COMMANDS:
            return None
        return self.commands.get(name) or TyperCommand(name, help=COMMANDS[name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that a command line names, ready to run."""
        if args and args[0] in COMMANDS:
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> Any:
        """Return a command with all its options."""
        if name not in self.commands:
            importlib.import_module(f".{name}", __package__)
            self.commands[name] = typer.main.get_group(app).commands[name]
        return self.commands[name]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train and test recognisers whose losses are graphs.",
    epilog="Example: [bold]arcgrad train demo[/bold], then [bold]arcgrad test runs/demo[/bold]. "
    "With ARCGRAD_TRACEBACK=1 errors show their traceback.",
)


def _version(wanted: bool) -> None:
    if wanted:
        import arcgrad as ag

        typer.echo(f"arcgrad {ag.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def is_distributed() -> bool:
    """Return whether ``torchrun`` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    """Return the rank of this process under ``torchrun``, or 0."""
    return int(os.environ["RANK"]) if is_distributed() else 0


DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(option: str, text: str | None) -> float | None:
    """Return the seconds of a text such as 90, 90s, 10m or 1.5h; None for None."""
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError(
            f"train: {option} must be a positive time such as 90s, 10m or 1.5h, but it is {text!r}"
        )
    return float(match[1]) * SECONDS[match[2]]


def experiment_names() -> list[str]:
    """Return the names of all experiments, to complete them."""
    from arcgrad.recipes.experiments import EXPERIMENTS

    return list(EXPERIMENTS)


Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Split = Annotated[str, typer.Option(help="train, validation or test.")]
Checkpoint = Annotated[str, typer.Option(help="best or last.")]
Device = Annotated[str, typer.Option(help="The device of the network: cpu, cuda, ...")]
Threads = Annotated[int, typer.Option(min=1, help="The number of threads of torch.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]


class Failures:
    """Files that failed: each is reported at once, and all are counted at the end."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, error: Exception, file: Path | None = None) -> None:
        """Report the error of a file, with its name unless the error has it."""
        self._count += 1
        message = " ".join(str(error).split())
        if file is not None and str(file) not in message:
            message = f"{message}, in {str(file)!r}"
        typer.echo(f"arcgrad: {message}", err=True)

    def finish(self, total: int) -> None:
        """End the command with an error if there are failures."""
        if self._count:
            typer.echo(f"arcgrad: {self._count} of {total} failed", err=True)
            raise typer.Exit(USER_ERROR)
