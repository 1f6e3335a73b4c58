"""The command line: its output, and errors in one line."""

import os
import re
import signal
import subprocess
import sys

import pytest
import trees
import typer
from command_line import run
from typer.testing import CliRunner

import arcgrad as ag
from arcgrad.recipes import cli, training
from arcgrad.recipes.cli.application import COMMANDS, seconds
from arcgrad.recipes.data import load_tokenizer
from arcgrad.recipes.experiments import EXPERIMENTS
from arcgrad.recipes.run import load_run

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
    assert code == 2
    assert out in ("", "training demo in runs/demo\n", "training demo in nowhere\n")
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


PROBE = """
import sys
from arcgrad.recipes.cli import main
sys.argv[0] = "arcgrad"
try:
    main()
finally:
    print(*sorted({"torch", "numpy.random", "matplotlib"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (["--help"], "Usage: arcgrad"),
        (["train", "--help"], "Usage: arcgrad train"),
        (["--version"], f"arcgrad {ag.__version__}"),
        (["experiments"], "demo "),
    ],
)
def test_help_and_versions_are_printed_without_torch(arguments, first):
    found = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().startswith(first)
    assert found.stderr.strip() == ""


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("arcgrad tr", {"train"}),
        ("arcgrad re", {"report", "reproduce"}),
        ("arcgrad train dem", {"demo"}),
        ("arcgrad train --see", {"--seed"}),
    ],
)
def test_the_shell_completes_commands_options_and_experiments(words, completions):
    variables = {"_ARCGRAD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_LINE": words}
    found = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, **variables, "COMP_CWORD": str(words.count(" "))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(found.stdout.split()) == completions
    assert "torch" not in found.stderr


def test_the_list_of_commands_has_the_first_lines_of_their_help():
    root = typer.main.get_command(cli.app)
    for name, text in COMMANDS.items():
        assert root.load(name).help.split("\n\n")[0].strip() == text


@pytest.mark.parametrize(
    ("text", "found"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (None, None)]
)
def test_times_have_units(text, found):
    assert seconds("--save-every", text) == found


@pytest.mark.parametrize("text", ["0", "ten", "-3m", "3d", ""])
def test_times_of_other_forms_are_errors(text):
    with pytest.raises(ValueError, match=r"^train: --save-every must be .*, but it is '"):
        seconds("--save-every", text)


def test_the_name_of_the_run_is_printed_before_torch_is_imported():
    code = """
import sys
from arcgrad.recipes.cli import main
sys.argv[1:] = ["train", "demo", "--out", "run"]
sys.modules["torch"] = None
main()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "training demo in run\n"
    assert found.returncode != 0


def test_a_terminated_training_ends_with_the_code_of_its_signal(tmp_path, capsys, monkeypatch):
    def terminated(*_, **__):
        return training.Result(0, 100.0, (), False, interrupted=True, signal=signal.SIGTERM)

    monkeypatch.setattr(training, "train", terminated)
    assert run(capsys, monkeypatch, "train", "demo", "--out", tmp_path)[0] == 128 + signal.SIGTERM


def test_a_run_with_a_relative_data_path_is_tested_from_any_folder(tmp_path, capsys, monkeypatch):
    trees.iam(tmp_path / "iam")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, monkeypatch, "prepare", "iam", "iam", "--unit", "words")[0] == 0
    settings = ["data.corpus=iam", "data.task=words", "data.path=iam", "optim.batch_size=2"]
    settings += ["optim.epochs=1", "model.preset=small", "loss.min_frames=1"]
    options = [f"--set={setting}" for setting in settings]
    code, _, err = run(capsys, monkeypatch, "train", "demo", *options, "--out", "run", "--quiet")
    assert (code, err) == (0, "")
    assert load_run("run")[0].data.path == str(tmp_path / "iam")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    code, out, err = run(capsys, monkeypatch, "test", "../run", "--show", "0")
    assert (code, err) == (0, "")
    assert out.startswith("test: CER ")


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
