"""Files of settings, and how they combine with the command line."""

import json
import sys

import pytest

from arcgrad.recipes import cli, training
from arcgrad.recipes.experiments import (
    find,
    from_dict,
    load_settings,
    override,
    to_dict,
)

TOML = """
experiment = "table1/letters/ngram2/no_blank"
seed = 7
data.train = 100

[optim]
learning_rate = 1e-3
criterion_learning_rate = "none"
method = "sgd"
"""
YAML = """
experiment: table1/letters/ngram2/no_blank
seed: 7
data:
  train: 100
  path: null
model:   # nothing in it
optim:
  learning_rate: 1e-3
  criterion_learning_rate: none
  method: sgd
"""
SETTINGS = ["seed=7", "data.train=100", "optim.learning_rate=1e-3", "optim.method=sgd"]


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def trained(monkeypatch, *arguments):
    """The experiment and the folder that a command would train."""
    asked = []

    def train(experiment, folder, **_):
        asked.append((experiment, str(folder)))
        return training.Result(1, 0.0, (), finished=True)

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(sys, "argv", ["arcgrad", "train", "--quiet", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 0
    return asked[0]


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.YML", YAML)])
def test_a_file_names_and_changes_an_experiment(tmp_path, monkeypatch, name, text):
    path = written(tmp_path, name, text)
    expected = override(find("table1/letters/ngram2/no_blank"), SETTINGS)
    assert expected.optim.criterion_learning_rate is None
    found = load_settings(path)
    assert found.pop("experiment") == "table1/letters/ngram2/no_blank"
    assert override(find("table1/letters/ngram2/no_blank"), found) == expected
    assert trained(monkeypatch, "--settings", path) == (
        expected,
        "runs/table1/letters/ngram2/no_blank",
    )


def test_the_command_line_overrides_the_file(tmp_path, monkeypatch):
    path = written(tmp_path, "a.toml", TOML)
    options = ["--set", "seed=8", "--set", "optim.epochs=3", "--out", "there"]
    found, folder = trained(monkeypatch, "demo", "--settings", path, *options)
    assert found == override(find("demo"), [*SETTINGS, "seed=8", "optim.epochs=3"])
    assert folder == "there"


def test_options_have_settings_of_their_own(monkeypatch):
    options = ["--data-path", "some where", "--epochs", 5, "--seed", 9]
    found, folder = trained(monkeypatch, "demo", *options)
    assert found == override(find("demo"), ["data.path=some where", "optim.epochs=5", "seed=9"])
    assert folder == "runs/demo"


@pytest.mark.parametrize("name", ["demo", "table2/iam/pieces/prune10", "table3/letters/wfst"])
def test_the_settings_of_a_run_can_be_a_file(tmp_path, name):
    path = written(tmp_path, "a.yaml", json.dumps(to_dict(find(name))))
    assert from_dict(load_settings(path)) == find(name)


def test_an_empty_file_changes_nothing(tmp_path):
    for name in ("a.toml", "a.yaml"):
        assert load_settings(written(tmp_path, name, "")) == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ini", "", r"must end in .toml, .yaml or .yml, but it is '.*a.ini'"),
        ("a.toml", "seed = ", r"'.*a.toml' must be TOML, but it cannot be read: Invalid value"),
        ("a.yaml", "seed: [", r"'.*a.yaml' must be YAML, but it cannot be read: while parsing"),
        ("a.toml", "seed = '\udcff'", r"'.*a.toml' must be text in UTF-8, but byte 8 on line 1"),
        ("a.toml", "a = " + "[" * 5000, r"'.*a.toml' must be TOML, but it cannot be read: "),
        ("a.yaml", "a: " + "[" * 5000, r"'.*a.yaml' must be YAML, but it cannot be read: "),
        ("a.yaml", "a: !!int ''", r"'.*a.yaml' must be YAML, but it cannot be read: "),
        ("a.yaml", "a: 2001-99-99", r"'.*a.yaml' must be YAML, but it cannot be read: month"),
        ("a.yaml", "a: &b 1\nc: *b", r"'.*a.yaml' must be YAML, .* there is an alias on line 2"),
        ("a.yaml", "!!python/name:os.system", r"'.*a.yaml' must be YAML, but it cannot be read: "),
        ("a.yaml", "- seed", r"must be a table, but '.*a.yaml' is \['seed'\]"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=f"^load_settings: .*{message}"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim: {learn_rate: 1}", "it is 'optim.learn_rate' in 'a.yaml'; did you mean 'optim.lea"),
        ("otpim: {}", "a key must be a setting, but it is 'otpim' in 'a.yaml'; did you mean"),
        ("seed: {a: 1}", "seed must be a whole number, but it is {'a': 1} in 'a.yaml'"),
        ("optim: 3", "a key must be a setting, but it is 'optim' in 'a.yaml'"),
        ("1: 2", "a key must be a setting, but it is '1' in 'a.yaml'"),
        ("seed: {}", "seed must be a whole number, but it is {} in 'a.yaml'"),
        ("seed: 1.5", "seed must be a whole number, but it is 1.5 in 'a.yaml'"),
        ("seed: yes", "seed must be a whole number, but it is True in 'a.yaml'"),
        ("data: {path: 3}", "data.path must be a text, but it is 3 in 'a.yaml'"),
        ("data: {augment: 1}", "data.augment must be true or false, but it is 1 in 'a.yaml'"),
        ("loss: {blank: no}", "loss.blank must be one of .none., .*, but it is False in 'a.yaml'"),
        ("optim: {decay: [1]}", r"optim.decay must be a number, but it is \[1\] in 'a.yaml'"),
        ("optim: {epochs: 0}", r"optim.epochs must be positive, but it is 0 in 'a.yaml'"),
        ("experiment: demo", "a key must be a setting, but it is 'experiment' in 'a.yaml'"),
    ],
)
def test_an_invalid_setting_in_a_file_is_named(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a.yaml", text)
    with pytest.raises(ValueError, match=f"^override.*{message}"):
        override(find("demo"), load_settings("a.yaml"), source="a.yaml")


def test_settings_that_depend_on_each_other_are_checked_together():
    demo = find("demo")
    assert override(demo, ["optim.epochs=0", "optim.epochs=2"]).optim.epochs == 2
    with pytest.raises(ValueError, match=r"^override: optim.epochs must be positive, but it is"):
        override(demo, ["seed=3", "optim.decay=0.1", "optim.epochs=-1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "an experiment must be named, as an argument or by 'experiment' in the file of"),
        (["--settings", "a.yaml"], "but it is 3; 'arcgrad experiments' lists them"),
        (["--settings", "no.toml"], "No such file or directory: 'no.toml'"),
        (["demo", "--settings", "b.toml"], "it is 'sed' in 'b.toml'; did you mean 'seed'?"),
        (
            ["demo", "--set", "optim.epochs=0"],
            "optim.epochs must be positive, but it is '0'",
        ),
    ],
)
def test_errors_in_files_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a.yaml", "experiment: 3")
    written(tmp_path, "b.toml", "sed = 3")
    monkeypatch.setattr(sys, "argv", ["arcgrad", "train", *arguments])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("arcgrad: ")
    assert error.count("\n") == 1
    assert message in error
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "b.toml"}
