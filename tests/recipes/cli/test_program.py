"""The command line: its output, and errors in one line."""

import os
import re
import subprocess
import sys

import pytest
from command_line import run
from typer.testing import CliRunner

from arcgrad.recipes import cli
from arcgrad.recipes.data import load_tokenizer
from arcgrad.recipes.experiments import EXPERIMENTS

TINY = [
    f"--set={setting}"
    for setting in ("data.train=4", "data.validation=2", "data.test=3", "optim.batch_size=2")
]


def test_experiments_are_listed_with_what_the_paper_reports(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "experiments")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(EXPERIMENTS)
    wanted = "Table 1, 2-gram, no blank: CER 9.4 in the paper"
    assert re.search(rf"^table1/letters/ngram2/no_blank +{wanted}$", out, re.MULTILINE)


def test_a_run_is_trained_resumed_and_tested(tmp_path, capsys, monkeypatch):
    train = ["train", "demo", *TINY, "--out", tmp_path / "run"]
    code, out, err = run(capsys, monkeypatch, *train, "--epochs", 1)
    assert (code, err) == (0, "")
    assert "epoch 1/1  train loss " in out
    assert out.splitlines()[-1].startswith("best validation CER ")
    code, out, _ = run(capsys, monkeypatch, *train, "--epochs", 2, "--resume", "--quiet")
    assert (code, out) == (0, "")
    code, out, _ = run(
        *(capsys, monkeypatch, "test", tmp_path / "run", "--show", 2),
        *("--pictures", tmp_path / "pictures"),
    )
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == [
        *["reference", "recognised"] * 2,
        *["wrote"] * 2,
        "test:",
    ]
    assert lines[-1].endswith("% of 3 examples")
    for name in ("test-0.png", "test-1.png"):
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = run(capsys, monkeypatch, "test", tmp_path / "run", "--show", 1, "--images")
    drawing = out.split("reference")[0]
    assert code == 0
    assert set(drawing) == set(" \n▀▄█")
    assert 30 < max(map(len, drawing.splitlines())) <= 60


def test_a_report_is_written_into_the_run_or_to_the_given_path(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        options = [*TINY, f"--set=seed={seed}", "--epochs", 1, "--quiet", "--out", f"run{seed}"]
        assert run(capsys, monkeypatch, "train", "demo", *options)[0] == 0
    options = ["--examples", 1, "--split", "validation"]
    for arguments, page in [
        (["run0"], "run0/report.html"),
        (["run0", "run1"], "report.html"),
        (["run0", "--out", "page.html", "--checkpoint", "last"], "page.html"),
    ]:
        code, out, err = run(capsys, monkeypatch, "report", *arguments, *options)
        assert (code, out, err) == (0, f"wrote {page}\n", "")
        assert "on the validation data" in (tmp_path / page).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "dmeo"], "it is 'dmeo'; did you mean 'demo'?"),
        (["train", "demo", "--set", "optim.epoch=3"], "did you mean 'optim.epochs'?"),
        (["train", "demo", "--set", "data.corpus=iam"], "data.path is not set"),
        (
            ["train", "demo", "--resume", "--out", "nowhere"],
            "no 'nowhere/last.safetensors'",
        ),
        (["test", "nowhere"], "the folder of a run must have experiment.json"),
        (["report", "nowhere"], "the folder of a run must have experiment.json"),
        (
            ["report", "one", "one"],
            "no run twice, but they are",
        ),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("arcgrad: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_internal_error_shows_the_traceback(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("arcgrad.recipes.training.train", broken)
    monkeypatch.setattr(sys, "argv", ["arcgrad", "train", "demo"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize("command", [[], ["train"], ["test"], ["report"], ["experiments"]])
def test_help_has_an_example(command):
    result = CliRunner().invoke(cli.app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "arcgrad " in result.output.split("Example")[1]


def test_the_module_is_a_program(tmp_path):
    command = [sys.executable, "-m", "arcgrad.recipes.cli", "test", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (found.returncode, found.stdout) == (2, "")
    assert "Traceback" not in found.stderr


def test_pieces_are_learned_from_text_files(tmp_path, capsys, monkeypatch):
    text = tmp_path / "train.txt"
    text.write_text("the cat sat on the mat\n\nthe rat sat\n")
    model = tmp_path / "pieces.model"
    code, out, err = run(capsys, monkeypatch, "pieces", text, "--size", 14, "--out", model)
    assert (code, err) == (0, "")
    assert out == f"14 pieces of 2 texts, in {model}\n"
    pieces = load_tokenizer(model)
    assert pieces.decode(pieces.encode("the rat on the mat")) == "the rat on the mat"
    code, _, err = run(capsys, monkeypatch, "pieces", text, "--size", 900, "--out", model)
    assert code == 2
    assert err.startswith("arcgrad: ")
    assert "Traceback" not in err
    code, _, err = run(capsys, monkeypatch, "pieces", tmp_path / "no", "--size", 9, "--out", model)
    assert code == 2
    assert "No such file" in err
