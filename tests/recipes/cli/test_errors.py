"""Errors of the command line: one line for a user error, else the traceback."""

import re
import sys

import pytest

from arcgrad.recipes import cli, training
from arcgrad.recipes.cli import program


def raising(monkeypatch, error):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(training, "train", broken)
    monkeypatch.setattr(sys, "argv", ["arcgrad", "train", "demo"])


@pytest.mark.parametrize(
    "error",
    [
        ValueError("train: a rule, but not this"),
        ValueError("override (optim.epochs in 'a (1).toml'): OptimSettings: a rule, but not this"),
        ValueError("arcgrad.load: a rule, but not this"),
        training.TrainingError("train: a rule, but not this"),
        FileNotFoundError(2, "No such file", "x"),
    ],
    ids=str,
)
def test_user_errors_are_one_line(monkeypatch, capsys, error):
    raising(monkeypatch, error)
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == f"arcgrad: {error}\n"
    monkeypatch.setenv("ARCGRAD_TRACEBACK", "1")
    with pytest.raises(type(error)):
        cli.main()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("operands could not be broadcast together with shapes (2,) (3,)"),
        ValueError("invalid literal for int() with base 10: 'x'"),
        ValueError(),
        ZeroDivisionError("division by zero"),
        RuntimeError("train: not one of ours"),
    ],
    ids=str,
)
def test_other_errors_show_the_traceback(monkeypatch, error):
    raising(monkeypatch, error)
    with pytest.raises(type(error)):
        cli.main()


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (ValueError("train: no"), 2, r"arcgrad \(process 3\): train: no\n"),
        (RuntimeError("no"), 1, r"Traceback .*RuntimeError: no\n"),
    ],
    ids=repr,
)
def test_one_of_several_processes_prints_its_rank_and_exits_at_once(
    monkeypatch, capsys, error, code, shown
):
    raising(monkeypatch, error)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    monkeypatch.setenv("RANK", "3")
    ends = []

    def end(code):
        ends.append(code)
        raise SystemExit

    monkeypatch.setattr(program.os, "_exit", end)
    with pytest.raises(SystemExit):
        cli.main()
    assert ends == [code]
    assert re.fullmatch(shown, capsys.readouterr().err, re.DOTALL)
