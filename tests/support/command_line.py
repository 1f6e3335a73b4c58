"""Runs of the program ``arcgrad``, and small trainings for it to work on."""

import sys

import pytest

from arcgrad.recipes import cli, experiments
from arcgrad.recipes.training import train


def run(capsys, monkeypatch, *arguments):
    """The exit code, output and errors of a command."""
    monkeypatch.setattr(sys, "argv", ["arcgrad", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    printed = capsys.readouterr()
    return exit.value.code, printed.out, printed.err


def tiny(*settings):
    """A small experiment. Without blanks, and after little training, it outputs many letters."""
    sizes = ["data.train=4", "data.validation=2", "data.test=4", "optim.batch_size=2"]
    return experiments.override(
        experiments.find("demo"),
        [*sizes, "optim.epochs=1", "loss.blank=none", "loss.allow_repeats=true", *settings],
    )


def tiny_run(folder, *settings):
    """The folder of a small run."""
    train(tiny(*settings), folder, quiet=True)
    return folder
