"""What the command line prints, compared with the files in ``golden``.

A new command needs no change here: the help of every registered command is compared. After an
intended change, write the files again and check their diff:

    UPDATE_GOLDEN=1 python -m pytest tests/recipes/test_golden.py
"""

import importlib.metadata
import os
import re
import shlex
from pathlib import Path

import pytest
import trees
import typer
from command_line import run, tiny_run

from arcgrad.recipes import cli
from arcgrad.recipes.cli.application import COMMANDS
from arcgrad.recipes.data import load_data
from arcgrad.recipes.run import BEST, Run, load_run

GOLDEN = Path(__file__).with_name("golden")
HINT = "UPDATE_GOLDEN=1 python -m pytest tests/recipes/test_golden.py writes it"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Scores are sums of floats, whose last digits depend on the machine.
SCORES = re.compile(r"-\d+\.\d{2,}")

ERRORS = [
    "train dmeo",
    "train demo --set optim.learn_rate=1",
    "test nowhere",
    "decode nowhere line.png",
    "align nowhere",
    "prepare iam nowhere",
    "pieces nowhere.txt --size 9 --out pieces.model",
]


def is_pinned(name):
    """Whether the version of a package is the one of the development environment."""
    return f"{name}=={importlib.metadata.version(name)}" in CONSTRAINTS.read_text().splitlines()


# Other versions lay out pages of help in other ways.
pinned_layout = pytest.mark.skipif(
    not (is_pinned("typer") and is_pinned("rich")), reason="needs the pinned typer and rich"
)


def commands():
    """The names of all commands, and of those within them."""
    root = typer.main.get_command(cli.app)
    found, groups = [[]], [([name], root.load(name)) for name in COMMANDS]
    while groups:
        names, command = groups.pop()
        found.append(names)
        for name, inner in getattr(command, "commands", {}).items():
            groups.append(([*names, name], inner))
    return sorted(found)


def golden_file(names):
    return GOLDEN / f"{'-'.join(['help', *names])}.txt"


@pytest.fixture
def program(tmp_path, capsys, monkeypatch):
    """Run a command line in an empty folder; return its output on a terminal of a fixed width."""
    for name in ("TERMINAL_WIDTH", "FORCE_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)

    def shown(line):
        code, out, err = run(capsys, monkeypatch, *shlex.split(line))
        text = ESCAPES.sub("", out + err)
        printed = "\n".join(row.rstrip() for row in text.splitlines()).strip("\n").split("\n")
        return "\n".join([f"$ arcgrad {line}".rstrip(), *printed, *([f"[{code}]"] if code else [])])

    return shown


def compare(path, text):
    """Compares a text with a file, or writes the file if UPDATE_GOLDEN is set."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.exists(), f"{path} must exist, but it is missing; {HINT}"
    expected = path.read_text(encoding="utf-8")
    assert text + "\n" == expected, f"{path} must be what is printed; if that is right, {HINT}"


def test_there_are_commands():
    assert [] in commands()
    assert {"train", "test", "decode", "align", "prepare"} <= {names[0] for names in commands()[1:]}
    assert ["prepare", "wsj"] in commands()


@pinned_layout
@pytest.mark.parametrize("names", commands(), ids=" ".join)
def test_help_equals_the_golden_file(names, program):
    text = program(" ".join([*names, "--help"]))
    assert "example" in text.lower()
    compare(golden_file(names), text)


def test_every_golden_help_file_has_a_command():
    files = set(GOLDEN.glob("help*.txt"))
    assert files <= {golden_file(names) for names in commands()}


def test_the_list_of_experiments_equals_the_golden_file(program):
    lines = program("experiments").splitlines()[:3]
    # The widths of the columns depend on all names.
    compare(GOLDEN / "experiments.txt", "\n".join(re.sub(" {2,}", "  ", line) for line in lines))


def test_errors_equal_the_golden_file(program):
    compare(GOLDEN / "errors.txt", "\n".join(map(program, ERRORS)))


@pinned_layout
def test_usage_errors_equal_the_golden_file(program):
    compare(GOLDEN / "usage.txt", "\n".join(map(program, ["decode", "test run --nothing"])))


def constant_run(folder):
    """A run whose network finds the letter e in every frame, on any machine."""
    tiny_run(folder, "data.task=words", "loss.blank=optional", "loss.allow_repeats=false")
    content = Run(folder).load("test", BEST)
    for weights in content["network"].values():
        weights.zero_()
    tokens = load_run(folder)[1].tokenizer.tokens
    content["network"]["output.bias"][1 + tokens.index("e")] = 2.0
    Run(folder).save(BEST, content)
    data = load_data(load_run(folder)[0]).test
    data.image(0).save("word.png")
    Path("said.tsv").write_text(f"word.png\t{data.texts[0]}\nlost.png\tlost\n")
    Path("words.txt").write_text("ease\nevery\nsee\n")


def test_commands_on_a_run_equal_the_golden_file(program):
    constant_run(Path("run"))
    lines = [
        "test run --show 2",
        "decode run word.png lost.png",
        "decode run word.png --lexicon words.txt --nbest 2",
        "decode run word.png --json",
        "align run word.png --text see",
        "align run --split test --limit 2 --unit word --format json",
        "align run word.png --text see --unit word --format textgrid",
        "align run --manifest said.tsv --unit word",
    ]
    compare(GOLDEN / "run.txt", SCORES.sub("<score>", "\n".join(map(program, lines))))


def test_preparing_corpora_equals_the_golden_file(program):
    trees.iam(Path("iam"))
    trees.librispeech(Path("libri"))
    trees.wsj(Path("wsj"), shorten=True)
    (Path("libri") / "dev-clean/84/121123/84-121123-0000.flac").unlink()
    lines = [
        "prepare iam iam --check",
        "prepare iam iam --unit words",
        "prepare librispeech libri",
        "prepare librispeech libri --part train-clean-100 --part test-clean",
        "prepare wsj wsj",
    ]
    compare(GOLDEN / "prepare.txt", "\n".join(map(program, lines)))
