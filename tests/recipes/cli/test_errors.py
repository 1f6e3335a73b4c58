"""Errors of the command line: one line for a user error, else the traceback."""

import errno
import os
import re
import sys

import pytest
from command_line import run, tiny_run
from PIL import Image

from arcgrad import _files
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


@pytest.mark.parametrize("value", ["2", "-1", "1"])
def test_a_dropout_that_is_no_fraction_is_one_line(capsys, monkeypatch, value):
    monkeypatch.setattr(
        sys, "argv", ["arcgrad", "train", "demo", "--set", f"model.dropout={value}"]
    )
    with pytest.raises(SystemExit):
        cli.main()
    error = capsys.readouterr().err
    rule = "at least 0" if value == "-1" else "below 1"
    assert error == f"arcgrad: override: model.dropout must be {rule}, but it is '{value}'\n"


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_files.os, "fsync", full)
    path = tmp_path / "last.safetensors"
    with pytest.raises(OSError, match=rf"No space left on device, writing: '{path}'"):
        _files.write(path, b"content")
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_is_too_short_is_named_with_its_size(tmp_path, capsys, monkeypatch):
    folder = tiny_run(tmp_path / "run")
    image = tmp_path / "thin.png"
    Image.new("L", (3, 400), 255).save(image)
    code, _, error = run(capsys, monkeypatch, "decode", folder, image)
    assert code == 2
    assert "must be long enough for a frame, but one of height 16 and length 1 is" in error
    assert f"in '{image}'" in error
